"""Retraining: a process of its own trains a candidate, while the service answers as before."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dropnode.saving import MODEL
from dropnode.serve.workplace import Workplace

logger = logging.getLogger("dropnode.serve")

State = Literal["idle", "running", "failed", "ready"]


@dataclass(frozen=True)
class Progress:
    """How far the last retraining is.

    Attributes
    ----------
    state : "ready" if a candidate waits for a decision
    done, of : models that are trained, and all of them; 0 if not known yet
    problem : why it failed
    """

    state: State
    done: int = 0
    of: int = 0
    problem: str | None = None


class Retraining:
    """The background process of one workplace, at most one at a time."""

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        waiting = (workplace.candidate / MODEL).exists()
        self._progress = Progress("ready" if waiting else "idle")

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return self._progress

    def start(self, labels: dict[str, str | None]) -> bool:
        """Start training with further labels; return False if a training runs already.

        A candidate that waits for a decision is removed.

        Raises
        ------
        OSError
            If the process cannot be started.
        """
        with self._lock:
            if self._progress.state == "running":
                return False
            self._workplace.discard()
            try:
                self._process = self._started(labels)
            except OSError as error:
                told = f"the training process cannot be started ({error.strerror}); try again"
                self._progress = Progress("failed", problem=told)
                raise
            self._progress = Progress("running")
            threading.Thread(target=self._follow, args=[self._process], daemon=True).start()
        return True

    def decided(self) -> None:
        """Forget the candidate, which was kept or discarded."""
        self._progress = Progress("idle")

    def stop(self) -> None:
        """End a training that runs."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
                self._process.wait()

    def _started(self, labels: dict[str, str | None]) -> subprocess.Popen[str]:
        place = self._workplace
        # The process finds this package where this process found it.
        roots = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        with open(place.said, "wb") as said:
            process = subprocess.Popen(
                [
                    *[sys.executable, "-m", "dropnode.serve.training_process"],
                    *[str(place.model), str(place.candidate)],
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                encoding="utf-8",
                errors="replace",
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, roots))},
            )
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(labels) + "\n")
            process.stdin.flush()
        return process

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        problem = None
        with process.stdout:
            for line in process.stdout:
                values = _record(line)
                problem = values.get("problem", problem)
                if {"done", "of"} <= values.keys():
                    self._progress = Progress("running", values["done"], values["of"])
        code = process.wait()
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        if code == 0:
            self._progress = Progress("ready")
        else:
            ended = f"signal {-code}" if code < 0 else f"exit code {code}"
            told = problem or f"the training process ended early ({ended}); try again"
            self._progress = Progress("failed", problem=told)
            logger.error("retraining failed: %s; see %s", told, self._workplace.said)


def _record(line: str) -> dict[str, Any]:
    """Return what a line of the process tells; nothing if a library wrote it."""
    try:
        values = json.loads(line)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}
