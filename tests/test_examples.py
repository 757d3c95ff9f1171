"""The examples run as they stand, offline, and show what their first lines promise."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def shares(text: str) -> dict[str, float]:
    """Return the accuracies that an example prints, by the first word of their lines."""
    found = re.findall(r"^(\w+).* ([0-9.]+) %$", text, flags=re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_every_example_is_run_here_and_linked_from_the_site() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {"citation_graph", "two_tables_with_text", "table_without_graph"}
    page = (EXAMPLES.parent / "docs/guide/examples.md").read_text(encoding="utf-8")
    assert all(f"examples/{name}.py" in page for name in names)


def test_a_citation_graph(capsys: pytest.CaptureFixture[str]) -> None:
    found = shares(printed("citation_graph", capsys))
    assert found["GRAND"] > found["words"] > found["citations"]


def test_two_tables_with_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed("two_tables_with_text", capsys)
    filled = re.search(r"(\d+) of (\d+) empty cells filled", text)
    assert filled
    # Eight modules or so: guessing the largest fills a third.
    assert int(filled[1]) > 0.75 * int(filled[2]) > 30
    assert "Forest: ensemble" in text


def test_a_table_without_a_graph(capsys: pytest.CaptureFixture[str]) -> None:
    found = shares(printed("table_without_graph", capsys))
    assert len(found) == 5
    assert found["GrandClassifier"] == max(found.values())
