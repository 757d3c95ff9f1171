"""Runs broken input and says how it ended: one case at a time, here or in a process of its own.

A surface is a module with a function ``case(random, folder)``. It returns a call, made from a
seeded generator, that may write inside the folder. Its function ``warm_up``, if it has one, does
once what takes long. To add a surface, write such a module and name it in :data:`SURFACES`.

In a process of its own, a case may also crash the interpreter or never end: the driver notices
both, names the seed, and goes on with the next. ``python tests/fuzz/driver.py api 7`` repeats one.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from dropnode.errors import DropnodeError

SURFACES = {
    "api": 450,
    "commands": 200,
    "specs": 250,
    "references": 200,
    "files": 300,
    "tables": 300,
    "broken_tables": 300,
}
"""The surfaces, and how many inputs of each are tried in all; the module is called after it."""

LIMIT = 10.0
"""Seconds after which a case counts as hanging."""

FOREIGN = "not ours.txt"
"""A file of the user in the folder of every case; nothing may touch it."""


class End(StrEnum):
    """How a case ended; the first two are as they should be."""

    FINE = "fine"
    ERROR = "one error of ours"
    TRACEBACK = "traceback"
    HANG = "hang"
    CRASH = "crash"
    HALF_WRITTEN = "half-written file"
    FOREIGN = "foreign file touched"


@dataclass(frozen=True)
class Report:
    """A case, by surface and seed, and how it ended."""

    surface: str
    seed: int
    end: End
    told: str = ""

    @property
    def sound(self) -> bool:
        """Whether a user could live with it."""
        return self.end in (End.FINE, End.ERROR)

    def __str__(self) -> str:
        return f"{self.surface} {self.seed}: {self.end}\n{self.told}"


class Told(Exception):  # noqa: N818
    """Raised by a case that has looked at an error and found it good."""


class _Late(BaseException):
    pass


def run_here(surface: str, seed: int) -> Report:
    """Run one case in this process, with a time limit."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name).resolve()
        (folder / FOREIGN).write_text("mine")
        made = _surface(surface).case(random.Random(f"{surface} {seed}"), folder)
        with _moved_to(folder):
            end, told = _outcome(made)
        if end in (End.FINE, End.ERROR):
            end, told = _left_behind(folder, end, told)
    return Report(surface, seed, end, told)


def run_apart(surface: str, seeds: range) -> Iterator[Report]:
    """Run cases in a process of their own, and start another where one ends it."""
    waiting = list(seeds)
    while waiting:
        command = [sys.executable, __file__, surface, *map(str, waiting)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            # The first answer includes the imports.
            patience = 60.0 + LIMIT
            while waiting:
                ready, _, _ = select.select([process.stdout], [], [], patience)
                line = process.stdout.readline() if ready else b""
                if not line:
                    process.kill()
                    end = End.CRASH if ready else End.HANG
                    yield Report(surface, waiting.pop(0), end, process.stderr.read().decode())
                    break
                yield Report(surface, waiting.pop(0), **json.loads(line))
                # Longer than the limit of the case, which the process notices itself.
                patience = 2 * LIMIT
            process.kill()


def check_output(folder: Path) -> None:
    """Raise an error if a folder holds what a reader could take for a result, but is not one."""
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(".tmp"):
            raise AssertionError(f"{path.relative_to(folder)} was left behind")
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        if path.name == "run.json":
            kept = {each.name for each in path.parent.iterdir()}
            assert kept & {"result.json", "checkpoint.safetensors"}, f"only {kept} was written"


@cache
def _surface(name: str) -> Any:
    """Return the module of a surface, after what takes long once."""
    module = importlib.import_module(name)
    getattr(module, "warm_up", lambda: None)()
    return module


def _outcome(call: Callable[[], object]) -> tuple[End, str]:
    before = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
        return End.FINE, ""
    except _Late:
        return End.HANG, traceback.format_exc(limit=-4)
    except (DropnodeError, Told) as error:
        return (End.ERROR, str(error)) if str(error) else (End.TRACEBACK, "an empty message")
    except BaseException as error:
        if _of_scikit_learn(error):
            return End.ERROR, str(error)
        return End.TRACEBACK, traceback.format_exc(limit=-8)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _ring(number: int, frame: FrameType | None) -> None:
    raise _Late


def _of_scikit_learn(error: BaseException) -> bool:
    """Return whether scikit-learn's own checks of input have raised an error."""
    if not isinstance(error, ValueError | TypeError):
        return False
    last = traceback.extract_tb(error.__traceback__)
    return any("sklearn/utils" in Path(frame.filename).as_posix() for frame in last)


def _left_behind(folder: Path, end: End, told: str) -> tuple[End, str]:
    foreign = folder / FOREIGN
    if not foreign.exists() or foreign.read_text() != "mine":
        return End.FOREIGN, told
    try:
        check_output(folder)
    except (AssertionError, ValueError) as error:
        return End.HALF_WRITTEN, f"{error} ({told})"
    return end, told


@contextmanager
def _moved_to(folder: Path) -> Iterator[None]:
    """Work in a folder, with a cache of datasets inside of it."""
    before, cache = Path.cwd(), os.environ.get("DROPNODE_DATA")
    os.chdir(folder)
    os.environ["DROPNODE_DATA"] = str(folder / "cache")
    try:
        yield
    finally:
        os.chdir(before)
        if cache is None:
            del os.environ["DROPNODE_DATA"]
        else:
            os.environ["DROPNODE_DATA"] = cache


def main(surface: str, seeds: list[str]) -> None:
    """Run cases one after the other, and print a line of JSON for each."""
    # What a case prints is no answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for seed in seeds:
        report: Any = run_here(surface, int(seed))
        print(json.dumps({"end": report.end, "told": report.told}), file=answers)


if __name__ == "__main__":
    # As a module, whose classes are those that surfaces import.
    importlib.import_module("driver").main(sys.argv[1], sys.argv[2:])
