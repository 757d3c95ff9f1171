"""The Python on the pages of the guide runs, from top to bottom of a page."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import ROOT, blocks


@pytest.mark.parametrize(
    ("page", "last"),
    [
        ("quickstart", "[1. 0."),
        ("your-data", "homophily 0.2, mlp: accuracy"),
        ("trust", "["),
        ("attack", "1650"),
    ],
)
def test_the_python_of_a_page_runs(
    page: str,
    last: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    told = blocks(ROOT / "docs" / "guide" / f"{page}.md")
    code = "\n".join(block.text for block in told if block.language == "python")
    exec(compile(code, f"the code of {page}.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[-1].startswith(last)
