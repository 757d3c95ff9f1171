"""A service that is killed loses no label that it confirmed, and the old model is still served."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

from conftest import CLASSES
from dropnode.serve.app import create_app
from dropnode.serve.explorer import Explorer
from dropnode.serve.guard import Guard


class Process:
    """A real process of ``dropnode serve``."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "dropnode", "serve", str(folder), "--port", "0", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        address = json.loads(self.process.stdout.readline())["address"]
        self.place = urlsplit(address).netloc

    def ask(self, path: str, body: Any = None) -> Any:
        connection = HTTPConnection(self.place, timeout=60)
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        connection.request("GET" if data is None else "POST", path, data, headers)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        assert answer.status < 300, content
        return content

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Person(threading.Thread):
    """Someone who labels without a pause, and remembers what was confirmed."""

    def __init__(self, process: Process) -> None:
        super().__init__(daemon=True)
        self.process = process
        self.confirmed: list[tuple[str, str]] = []

    def run(self) -> None:
        number = 0
        while True:
            name, label = f"n{6 + number % 34}", CLASSES[number % 2]
            number += 1
            try:
                self.process.ask("/labels", {"labels": [{"id": name, "label": label}]})
            except (OSError, HTTPException, ValueError):
                return
            self.confirmed.append((name, label))


def contents(folder: Path) -> dict[str, str]:
    """Return a hash of every file."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def trainings(folder: Path) -> list[str]:
    """Return the processes that train a candidate of a model."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "dropnode.serve.training_process" in line and str(folder) in line:
            found.append(each.parent.name)
    return found


def until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def check_after(folder: Path, person: Person, before: dict[str, str]) -> None:
    """Check what a start after a crash finds."""
    # The process that trained notices that nobody listens any more.
    until(lambda: not trainings(folder))
    stored = [
        (entry["id"], entry["label"])
        for entry in map(json.loads, (folder.parent / "model.explorer/labels.jsonl").open())
    ]
    # At most the label under way is there besides, in full.
    assert stored[: len(person.confirmed)] == person.confirmed
    assert len(stored) <= len(person.confirmed) + 1
    assert contents(folder) == before
    explorer = Explorer(folder)
    client = TestClient(Guard(create_app(explorer), {"testserver"}))
    latest = dict(stored)
    assert {name: client.get(f"/nodes/{name}").json()["now"] for name in latest} == latest
    assert client.get("/retrain").json()["state"] in ("idle", "ready")
    explorer.close()


needs_proc = pytest.mark.skipif(
    not os.path.exists("/proc/self/cmdline"), reason="processes are found in /proc"
)


@needs_proc
@pytest.mark.slow
def test_a_kill_while_labels_are_given_and_a_candidate_is_trained(folder: Path) -> None:
    before = contents(folder)
    process = Process(folder)
    person = Person(process)
    process.ask("/labels", {"labels": [{"id": "n20", "label": "mate"}]})
    person.confirmed.append(("n20", "mate"))
    process.ask("/retrain", {})
    person.start()
    until(lambda: len(person.confirmed) > 20)
    assert process.ask("/retrain")["state"] == "running"
    process.kill()
    person.join()
    check_after(folder, person, before)


@needs_proc
@pytest.mark.slow
def test_kills_at_any_moment_of_a_training(folder: Path) -> None:
    before = contents(folder)
    confirmed: list[tuple[str, str]] = []
    for pause in (0.0, 2.0, 5.0, 10.0):
        process = Process(folder)
        person = Person(process)
        person.confirmed = list(confirmed)
        process.ask("/labels", {"labels": [{"id": "n20", "label": "mate"}]})
        person.confirmed.append(("n20", "mate"))
        process.ask("/retrain", {})
        person.start()
        time.sleep(pause)
        process.kill()
        person.join()
        check_after(folder, person, before)
        stored = map(json.loads, (folder.parent / "model.explorer/labels.jsonl").open())
        confirmed = [(entry["id"], entry["label"]) for entry in stored]
