"""Odd values of ``--out``: one line that names it, exit code 1 or 2, and nothing is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropnode import cli

SPEC = """
title: One row
datasets: [sbm]
seeds: 1
rows:
  - {method: label-propagation}
"""

NODES = "id,x,y\na,1,k\nb,2,m\nc,3,k\nd,4,m\n"

COMMANDS = {
    "fit": ["fit", "--nodes", "{nodes}", "--label", "y", "--method", "label-propagation", "--out"],
    "train": ["train", "sbm", "--method", "label-propagation", "--out"],
    "resume": ["train", "sbm", "--method", "label-propagation", "--resume", "--out"],
    "seeds": ["train", "sbm", "--method", "label-propagation", "--seeds", "2", "--out"],
    "reproduce": ["reproduce", "{spec}", "--out"],
    "graphnas": ["tune", "sbm", "--method", "graphnas", "--trials", "1", "--out"],
    "tune": ["tune", "sbm", "--method", "label-propagation", "--try", "steps=2", "--out"],
    "attack": ["attack", "sbm", "--kind", "random", "--rate", "0.1", "--out"],
    "trials": ["trials"],
    "report": ["report"],
}

PLACES = {
    "a file": "file{ending}",
    "below a file": "file{ending}/run{ending}",
    "below a file, deeper": "file{ending}/deep/run{ending}",
    "a long name": "x" * 300 + "{ending}",
    "below a long name": "x" * 300 + "/run{ending}",
    "a folder of somebody": "folder{ending}",
    "a link to nothing": "link{ending}",
    # A folder that not even root may write to.
    "no permission": "/proc/self/run{ending}",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_odd_place_is_one_line(
    command: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ending = ".npz" if command == "attack" else ""
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / f"file{ending}").write_text("precious")
    (tmp_path / f"folder{ending}").mkdir()
    (tmp_path / f"folder{ending}" / "notes.txt").write_text("precious")
    (tmp_path / f"link{ending}").symlink_to(tmp_path / "nothing" / "at" / "all")
    before = sorted(tmp_path.rglob("*"))
    out = str(tmp_path / PLACES[place].format(ending=ending))
    inputs = {"spec": tmp_path / "spec.yaml", "nodes": tmp_path / "nodes.csv"}
    arguments = [word.format(**inputs) for word in COMMANDS[command]]
    code = cli._run([*arguments, out])
    captured = capsys.readouterr()
    assert code in (1, 2)
    assert captured.out == ""
    line = captured.err.strip()
    assert line.startswith("dropnode: ")
    assert "\n" not in line
    assert "[Errno" not in line
    named = [str(path) for path in (Path(out), *Path(out).parents) if len(path.parts) > 1]
    assert any(path in line for path in named)
    assert ";" in line, "there is no cure"
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / f"file{ending}").read_text() == "precious"


def test_an_export_replaces_an_export_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dropnode.experiments.store import Store

    Store(tmp_path / "folder").close()
    notes, trials = tmp_path / "notes.csv", tmp_path / "trials.csv"
    notes.write_text("day,weather\n1,rain\n")
    for _ in range(2):
        assert cli._run(["trials", str(tmp_path / "folder"), "export", str(trials)]) == 0
    capsys.readouterr()
    assert cli._run(["trials", str(tmp_path / "folder"), "export", str(notes)]) == 2
    assert "notes.csv exists and has no exported trials" in capsys.readouterr().err
    assert notes.read_text() == "day,weather\n1,rain\n"


def test_a_file_of_people_with_ids_is_no_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from dropnode.experiments.store import Store

    Store(tmp_path / "folder").close()
    people = tmp_path / "people.csv"
    people.write_text("id,name,age\n1,Ada,36\n")
    assert cli._run(["trials", str(tmp_path / "folder"), "export", str(people)]) == 2
    assert "people.csv exists and has no exported trials" in capsys.readouterr().err
    assert people.read_text() == "id,name,age\n1,Ada,36\n"
