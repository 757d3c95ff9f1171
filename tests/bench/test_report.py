"""What a person or a script gets from the benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dropnode import cli
from dropnode.bench import growth, suite
from dropnode.bench.growth import exponent
from dropnode.bench.picture import save_picture
from dropnode.bench.report import print_report


def dropnode(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = cli._run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def result() -> dict[str, Any]:
    """Figures of every part, such as the benchmark returns."""
    times = {"naive": 500.0, "exact": 40.0, "fast": 6.25, "pyg-gcn": 5.0, "pyg-gat": 14.0}
    sizes = np.array([1e4, 1e5, 1e6])
    grown = {"epoch_ms": sizes / 200, "peak_mb": 400 + sizes / 100, "working_mb": sizes / 100}
    return {
        "machine": suite.machine(),
        "epoch": [
            {
                "dataset": dataset,
                "path": path,
                "median_ms": ms,
                "iqr_ms": ms / 50,
                "ratio_to_naive": 500.0 / ms,
                "ratio_iqr": 0.1,
                "ratio_to_pyg_gcn": 5.0 / ms,
                "ratio_to_pyg_gcn_iqr": 0.1,
            }
            for dataset in ("cora", "citeseer")
            for path, ms in times.items()
        ],
        "propagation": [
            {
                "graph": "pubmed",
                "nodes": 19_717,
                "columns": 128,
                "hops": 5,
                "ms": 10.0,
                "gb_s": 30.0,
                "gb_s_iqr": 0.5,
                "fraction_of_bandwidth": 1.5,
            }
        ],
        "bandwidth_gb_s": 20.0,
        "scaling": [
            {
                "nodes": int(nodes),
                "edges": int(5 * nodes),
                "epoch_iqr_ms": 0.1,
                **{name: float(values[row]) for name, values in grown.items()},
            }
            for row, nodes in enumerate(sizes)
        ],
        "exponents": {
            name: exponent(sizes.tolist(), grown[key].tolist())
            for name, key in (("epoch", "epoch_ms"), ("peak", "peak_mb"), ("working", "working_mb"))
        },
        "accuracy": [
            {
                "dataset": "cora",
                "path": "fast",
                "seeds": [0, 1, 2],
                "median_seconds": 6.5,
                "test_accuracy": [85.0, 85.5, 86.0],
                "mean_accuracy": 85.5,
                "paper": 85.4,
            }
        ],
        "seconds": 123.0,
    }


def test_the_exponent_is_recovered() -> None:
    sizes = [10_000, 30_000, 100_000, 300_000]
    assert exponent(sizes, [0.02 * size**1.25 for size in sizes]) == pytest.approx(1.25)
    generator = np.random.default_rng(0)
    noisy = [size * generator.lognormal(0.0, 0.05) for size in sizes]
    assert exponent(sizes, noisy) == pytest.approx(1.0, abs=0.05)


def test_the_tables_tell_every_figure(
    result: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    print_report(result, Console(width=120, highlight=False))
    lines = capsys.readouterr().out.splitlines()

    def words(*start: str) -> str:
        found = [line for line in lines if line.split()[: len(start)] == list(start)]
        assert len(found) == 1, start
        return found[0]

    assert "6.25 (0.12)" in words("cora", "fast", "6.25")
    assert "80.0 (0.1)" in words("cora", "fast", "6.25")
    assert "85.0 to 86.0" in words("cora", "fast", "3")
    assert "1.50" in words("pubmed")
    assert any("cache" in line for line in lines), "a fraction above 1 is not explained"
    assert words("exponent").split()[1:] == ["1.00", "0.66", "1.00"]  # log10(10400 / 500) / 2


def test_the_picture_is_drawn_of_whatever_was_measured(
    result: dict[str, Any], tmp_path: Path
) -> None:
    widths = {}
    for parts in (("epoch", "scaling"), ("epoch",), ("scaling",)):
        chosen = {key: value for key, value in result.items() if key in (*parts, "machine")}
        if "scaling" in parts:
            chosen["exponents"] = result["exponents"]
        path = tmp_path / f"{'-'.join(parts)}.png"
        assert save_picture(path, chosen)
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG")
        widths[parts] = int.from_bytes(data[16:20], "big")
    assert widths["epoch", "scaling"] > widths[("epoch",)] > widths[("scaling",)]
    assert not save_picture(tmp_path / "none.png", {"machine": result["machine"]})
    assert not (tmp_path / "none.png").exists()


@pytest.mark.slow
def test_growth_is_measured_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command as a script calls it, on graphs small enough for a test."""
    monkeypatch.setattr(growth, "SIZES", (400, 4000))
    out = tmp_path / "figures"
    code, printed, errors = dropnode(
        "bench", "--only", "scaling", "--json", "--out", str(out), capsys=capsys
    )
    assert code == 0, errors
    result = json.loads(printed)
    assert set(result) == {"machine", "scaling", "exponents", "seconds"}
    assert {"cpu", "cores", "threads", "python", "torch", "numba"} <= set(result["machine"])
    assert [row["nodes"] for row in result["scaling"]] == [400, 4000]
    assert [row["edges"] for row in result["scaling"]] == [2000, 20000]
    small, large = result["scaling"]
    # 4,000 rows of 100 features and of 128 hidden units, a few times over.
    assert max(2, small["working_mb"]) < large["working_mb"] < 300
    assert large["peak_mb"] > large["working_mb"]
    assert set(result["exponents"]) == {"epoch", "peak", "working"}
    assert json.loads((out / "bench.json").read_text()) == result
    assert (out / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert "4,000 nodes" in errors


def test_an_unknown_part_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed, errors = dropnode(
        "bench", "--only", "epochs", "--out", str(tmp_path), capsys=capsys
    )
    assert (code, printed) == (2, "")
    assert len(errors.strip().splitlines()) == 1
    assert "did you mean 'epoch'" in errors


def test_a_missing_dataset_is_one_line_and_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dropnode.errors import DataError

    def missing(name: str) -> None:
        raise DataError(f"no {name} here; give it another place")

    monkeypatch.setattr("dropnode.bench.epochs.load_dataset", missing)
    code, printed, errors = dropnode(
        "bench", "--only", "epoch", "--out", str(tmp_path), capsys=capsys
    )
    assert (code, printed) == (1, "")
    assert errors.strip() == "dropnode: no cora here; give it another place"
    assert list(tmp_path.iterdir()) == []
