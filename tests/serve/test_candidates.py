"""A candidate takes the place of the model when a person says so, whole and never half."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from conftest import people
from dropnode import GrandClassifier, TableModel, read_tables
from dropnode.errors import ConfigError, WorkError
from dropnode.serve import training_process
from dropnode.serve.app import create_app
from dropnode.serve.explorer import Explorer
from dropnode.serve.guard import Guard
from dropnode.serve.workplace import restore


def with_candidate(folder: Path) -> Explorer:
    """Return an explorer beside whose model a copy of it waits, with another wrong label less."""
    place = folder.with_name("model.explorer")
    shutil.copytree(folder, place / "candidate")
    return Explorer(folder)


def test_a_candidate_that_is_kept_is_the_model_now_and_after_a_restart(folder: Path) -> None:
    explorer = with_candidate(folder)
    (folder / "mark").touch()
    client = TestClient(Guard(create_app(explorer), {"testserver"}))
    status = client.get("/retrain").json()
    assert status["state"] == "ready"
    # The same model twice: judged alike on the same labels.
    compared = status["comparison"]
    assert compared["old"] == compared["new"]
    assert (compared["judged"], compared["changed"], compared["only_new"]) == (12, 0, 0)
    assert client.post("/retrain/keep", json={}).json()["state"] == "idle"
    assert client.post("/retrain/keep", json={}).status_code == 409
    explorer.close()
    assert not (folder / "mark").exists()
    assert (folder.with_name("model.explorer") / "previous" / "mark").exists()
    Explorer(folder).close()


def test_a_candidate_that_is_discarded_leaves_the_model(folder: Path) -> None:
    explorer = with_candidate(folder)
    (folder / "mark").touch()
    client = TestClient(Guard(create_app(explorer), {"testserver"}))
    assert client.post("/retrain/discard", json={}).json()["state"] == "idle"
    assert client.post("/retrain/discard", json={}).status_code == 409
    explorer.close()
    assert (folder / "mark").exists()
    assert not (folder.with_name("model.explorer") / "candidate").exists()


def test_an_exchange_that_was_interrupted_is_undone_at_the_next_start(folder: Path) -> None:
    with_candidate(folder).close()
    os.rename(folder, folder.with_name("model.explorer") / "previous")
    explorer = Explorer(folder)
    assert len(explorer.served.ids) == 40
    explorer.close()
    assert not restore(folder)


def test_an_exchange_that_fails_leaves_the_old_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer = with_candidate(folder)
    shutil.rmtree(folder.with_name("model.explorer") / "candidate")
    before = explorer.served
    with pytest.raises(OSError, match="No such file"):
        explorer.workplace.keep()  # type: ignore[union-attr]
    assert explorer.served is before
    explorer.close()
    Explorer(folder).close()


def test_a_damaged_candidate_is_not_offered(folder: Path) -> None:
    explorer = with_candidate(folder)
    weights = folder.with_name("model.explorer") / "candidate" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert explorer.status()["comparison"] is None
    assert explorer.status()["state"] == "idle"
    explorer.close()


def test_a_candidate_of_other_nodes_or_edges_is_removed(folder: Path) -> None:
    nodes, _ = people()
    few = pa.table({"source": ["n6"], "target": ["n7"]})
    for rows, links in ((nodes.slice(0, 30), few), (nodes, few)):
        place = folder.with_name("model.explorer") / "candidate"
        tables = read_tables(rows, links, label="drinks", drop=["note"])
        classifier = GrandClassifier(random_state=0, max_epochs=2)
        TableModel.fit(tables, classifier, assess=False).save(place)
        explorer = Explorer(folder)
        client = TestClient(Guard(create_app(explorer), {"testserver"}))
        status = client.get("/retrain").json()
        assert (status["state"], status["comparison"]) == ("idle", None)
        assert client.post("/retrain/keep", json={}).status_code == 409
        assert not place.exists()
        explorer.close()


def test_one_process_serves_a_model_at_a_time(folder: Path, explorer: Explorer) -> None:
    with pytest.raises(ConfigError, match="another process serves"):
        Explorer(folder)


def test_a_folder_beside_which_nothing_can_be_written_is_only_looked_at(folder: Path) -> None:
    folder.with_name("model.explorer").write_text("a file is in the way")
    explorer = Explorer(folder)
    client = TestClient(Guard(create_app(explorer), {"testserver"}))
    assert client.get("/model").json()["writable"] is False
    answer = client.post("/labels", json={"labels": [{"id": "n7", "label": "mate"}]})
    assert answer.status_code == 409
    assert client.get("/graph").status_code == 200
    explorer.close()


def test_a_lock_that_cannot_be_written_leaves_the_model_to_be_looked_at(folder: Path) -> None:
    place = folder.with_name("model.explorer")
    # SQLite can open neither this nor a file in a folder that cannot be written.
    (place / ".driver").mkdir(parents=True)
    explorer = Explorer(folder)
    assert explorer.workplace is None
    explorer.close()


@pytest.mark.parametrize("name", [".driver", "labels.jsonl"])
def test_a_damaged_file_of_the_workplace_is_an_error_that_names_it(folder: Path, name: str) -> None:
    place = folder.with_name("model.explorer")
    place.mkdir()
    (place / name).write_text("what somebody wrote\n" * 100)
    with pytest.raises(WorkError, match=name) as caught:
        Explorer(folder)
    assert "--out" not in str(caught.value)


def test_a_training_that_cannot_be_started_has_failed_and_another_may_start(
    client: TestClient, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dropnode.serve.retraining.sys.executable", "/no/such/python")
    for _ in range(2):
        assert client.post("/retrain", json={}).status_code == 503
        status = client.get("/retrain").json()
        assert status["state"] == "failed"
        assert "No such file" in status["problem"]


def test_lines_of_a_library_do_not_end_the_progress_and_are_kept(
    client: TestClient,
    explorer: Explorer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = tmp_path / "python"
    said = ["hello", "[1]", '{"done": 1}', '{"done": 1, "of": 6}', '{"problem": "no labels"}']
    lines = [f"echo '{each}'" for each in said]
    script.write_text("\n".join(["#!/bin/sh", *lines, "echo 'a traceback' >&2", "exit 3"]))
    script.chmod(0o755)
    monkeypatch.setattr("dropnode.serve.retraining.sys.executable", str(script))
    client.post("/retrain", json={})
    status = wait(client)
    assert (status["state"], status["problem"]) == ("failed", "no labels")
    assert explorer.workplace is not None
    assert explorer.workplace.said.read_text() == "a traceback\n"
    assert str(explorer.workplace.said) in caplog.text


def test_the_problem_of_a_training_has_no_path_of_the_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder.with_name("model.explorer") / "candidate"

    def fail(model: Path, out: Path, labels: dict[str, str | None]) -> None:
        raise WorkError(f"{model}/weights.safetensors and {out}/model.json are damaged")

    monkeypatch.setattr(training_process, "retrain", fail)
    monkeypatch.setattr(training_process, "_end_with_parent", lambda: None)
    monkeypatch.setattr(os, "nice", lambda step: 0)
    monkeypatch.setattr(sys, "argv", ["", str(folder), str(out)])
    monkeypatch.setattr(sys, "stdin", io.StringIO("{}\n"))
    with warnings.catch_warnings():
        assert training_process.main() == 1
    told = json.loads(capsys.readouterr().out)["problem"]
    assert told == ("model/weights.safetensors and model.explorer/candidate/model.json are damaged")


def wait(client: TestClient) -> dict[str, object]:
    end = time.monotonic() + 300
    while (status := client.get("/retrain").json())["state"] == "running":
        assert time.monotonic() < end
        time.sleep(0.1)
    return status


@pytest.mark.slow
def test_labels_that_people_gave_train_the_candidate(client: TestClient, folder: Path) -> None:
    given = {"n20": "mate", "n22": "mate", "n11": None}
    labels = [{"id": name, "label": label} for name, label in given.items()]
    client.post("/labels", json={"labels": labels})
    assert client.post("/retrain", json={}).json()["state"] == "running"
    assert client.post("/retrain", json={}).status_code == 409
    status = wait(client)
    assert status["state"] == "ready", status
    compared = status["comparison"]
    assert (compared["labels_before"], compared["labels_now"]) == (12, 13)  # type: ignore[index]
    assert client.get("/nodes/n20").json()["label"] is None
    client.post("/retrain/keep", json={})
    assert client.get("/labels").json()["waiting"] == []
    for name, label in given.items():
        assert client.get(f"/nodes/{name}").json()["label"] == label
    metrics = json.loads((folder / "metrics.json").read_text())
    assert np.sum(metrics["confusion"]) == 13


@pytest.mark.slow
def test_a_training_that_fails_says_why_and_the_model_stays(client: TestClient) -> None:
    every = [each["id"] for each in client.get("/nodes?limit=500").json()["nodes"]]
    client.post("/labels", json={"labels": [{"id": each, "label": None} for each in every]})
    client.post("/retrain", json={})
    status = wait(client)
    assert status["state"] == "failed"
    assert "label" in str(status["problem"])
    assert client.get("/nodes/n20").status_code == 200
