"""``dropnode attack`` as a person or a script meets it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import damage
from dropnode import cli
from dropnode.analysis.attacks import KINDS
from dropnode.data import load_dataset, save_graph
from dropnode.experiments.references import TRANSFORMS

QUICK = {
    "random": [],
    "metattack": ["--set", "steps=10"],
    "prbcd": ["--set", "epochs=2", "--set", "block=500", "--set", "threat=evasion"],
}


pytestmark = pytest.mark.usefixtures("empty_cache")


def dropnode(*arguments: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = cli._run(list(map(str, arguments)))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_every_kind_is_a_transform_of_the_graph() -> None:
    assert all(TRANSFORMS[name].graph is not None for name in KINDS.values())
    assert set(QUICK) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_an_attacked_graph_is_written_and_trained_on(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, out = tmp_path / "mine.npz", tmp_path / "attacked.npz"
    save_graph(load_dataset("sbm", nodes=200, classes=4), own)
    arguments = ["attack", own, "--kind", kind, "--rate", 0.01, "--out", out, *QUICK[kind]]
    code, printed, errors = dropnode(*arguments, "--json", capsys=capsys)
    assert code == 0, errors
    told = json.loads(printed)
    clean, attacked = load_dataset(own), load_dataset(out)
    changed = int(abs(attacked.adjacency - clean.adjacency).sum() / 2)
    assert told["added"] + told["removed"] == changed
    assert 0 < changed <= 10
    assert told["dataset"].startswith(f"{own}@{KINDS[kind]}:rate=0.01")
    assert attacked.notes[-1] == f"{told['dataset']}, split seed 0"
    assert np.array_equal(attacked.split.train, clean.split.train)

    before = out.read_bytes()
    code, printed, _ = dropnode(*arguments, capsys=capsys)
    assert code == 0
    assert f"dropnode train {out}" in printed
    assert (load_dataset(out).adjacency != attacked.adjacency).nnz == 0
    assert len(before) == len(out.read_bytes())
    code, _, errors = dropnode(
        *["train", out, "--json", "--method", "gcn", "--set", "max_epochs=2"], capsys=capsys
    )
    assert code == 0, errors


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sbn", "--kind", "random"], "did you mean 'sbm'"),
        (["sbm", "--kind", "randon"], "did you mean 'random'"),
        (["sbm", "--kind", "nettack"], "metattack"),
        (["sbm", "--kind", "random", "--set", "rat=1"], "did you mean 'rate'"),
        (["sbm", "--kind", "random", "--set", "rate=1"], "--rate"),
        (["sbm", "--kind", "metattack", "--set", "mode=all"], "self, train, both"),
        (["sbm", "--kind", "metattack", "--seed", "-1"], "--seed"),
        (["sbm", "--kind", "prbcd", "--set", "block=3"], "raise block"),
        (["missing.npz", "--kind", "random"], "missing.npz is not a file"),
        (["digits", "--kind", "metattack"], "drop the weights"),
    ],
)
def test_a_wrong_call_is_one_line_and_leaves_no_file(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "attacked.npz"
    code, printed, errors = dropnode(
        "attack", *arguments, "--rate", 0.1, "--out", out, capsys=capsys
    )
    assert (code, printed) == (2, "")
    (line,) = errors.strip().splitlines()
    assert told in line
    assert not out.exists()


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "much"])
def test_a_rate_that_is_none_is_refused(
    rate: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["attack", "sbm", "--kind", "random", "--rate", rate, "--out", tmp_path / "a.npz"]
    code, _, errors = dropnode(*arguments, capsys=capsys)
    assert code == 2
    assert "rate" in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "told"),
    [("attacked.txt", "does not end in .npz"), ("file/attacked.npz", "cannot be written")],
)
def test_where_nothing_can_be_written_no_attack_is_run(
    name: str,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("dropnode.experiments.references.Reference.transformed", None)
    arguments = ["attack", "sbm", "--kind", "random", "--rate", "1", "--out", tmp_path / name]
    code, _, errors = dropnode(*arguments, capsys=capsys)
    assert code == 2
    assert told in errors


RANDOM = ["--kind", "random", "--rate", "0.1"]


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "attacked.npz"
    arguments = ["attack", "sbm", *RANDOM, "--out", out]
    assert dropnode(*arguments, capsys=capsys)[0] == 0
    before = out.read_bytes()
    damage.FullDisk(monkeypatch, fatal=1)
    code, _, errors = dropnode(*arguments, capsys=capsys)
    assert code == 1
    assert errors.strip() == (
        f"dropnode: {out}: No space left on device; free some space and run the same command "
        "again; what was stored is not lost"
    )
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("link", [None, "symlink_to", "hardlink_to"])
def test_the_graph_to_attack_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], link: str | None
) -> None:
    own = out = tmp_path / "mine.npz"
    save_graph(load_dataset("sbm", nodes=200, classes=4), own)
    if link:
        out = tmp_path / "link.npz"
        getattr(out, link)(own)
    before = own.read_bytes()
    code, printed, errors = dropnode("attack", own, *RANDOM, "--out", out, capsys=capsys)
    assert (code, printed) == (2, "")
    assert errors == f"dropnode: {out} is the graph to attack; choose another file with --out\n"
    assert own.read_bytes() == before


def test_a_file_of_another_command_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    attacked, text, graph = (tmp_path / f"{name}.npz" for name in ("attacked", "text", "graph"))
    assert dropnode("attack", "sbm", *RANDOM, "--out", attacked, capsys=capsys)[0] == 0
    text.write_text("precious")
    save_graph(load_dataset("sbm", nodes=200, classes=4), graph)
    for out in (attacked, text, graph):
        before = out.read_bytes()
        arguments = ["attack", "sbm", *RANDOM, "--seed", "1", "--out", out]
        code, printed, errors = dropnode(*arguments, capsys=capsys)
        assert (code, printed) == (2, "")
        assert errors.startswith(f"dropnode: {out} exists and is not the result of this command")
        assert out.read_bytes() == before
