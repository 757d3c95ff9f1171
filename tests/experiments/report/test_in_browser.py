"""The report of an experiment in a browser: on a desk, on a phone, by day and by night."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread
from report_folder import part_of_table, write_folder

from dropnode.experiments.report import write_report


def browser() -> str:
    """Return the path of Chromium; without it these tests fail unless told not to."""
    if os.environ.get("DROPNODE_NO_BROWSER") == "1":
        reason = "DROPNODE_NO_BROWSER=1: the page was not opened in a browser"
        print(reason)
        pytest.skip(reason)
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program is not None, "no chromium found; install it, or set DROPNODE_NO_BROWSER=1"
    return program


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The nine methods of Table 1 on one dataset."""
    browser()
    folder = tmp_path_factory.mktemp("table1")
    write_folder(folder, spec=part_of_table(datasets=["cora"], seeds=5))
    write_report(folder)
    return folder


def chromium(page: Path, *options: str) -> str:
    """Open a page in Chromium without a window; return what it prints."""
    finished = subprocess.run(
        [
            browser(),
            *"--headless --no-sandbox --disable-gpu --disable-dev-shm-usage".split(),
            *"--disable-background-networking --no-first-run --hide-scrollbars".split(),
            f"--user-data-dir={page.parent / 'browser'}",
            "--virtual-time-budget=3000",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    return finished.stdout


def measured(page: Path, folder: Path, width: int, *options: str) -> dict[str, Any]:
    """Open a page in a frame of some width, and return what a copy of it measures of itself.

    In a frame, as the window itself is never narrower than 500 pixels.
    """
    script = """<script>addEventListener("load", () => {
        const root = document.documentElement;
        const drawn = document.querySelector('svg [style*="fill:currentColor"]');
        const figures = [...document.querySelectorAll("svg")];
        parent.postMessage(JSON.stringify({
            content: root.scrollWidth,
            window: root.clientWidth,
            widest: Math.max(...figures.map(one => one.getBoundingClientRect().right)),
            ink: getComputedStyle(drawn).fill,
            text: getComputedStyle(document.body).color,
            paper: getComputedStyle(document.body).backgroundColor,
        }), "*");
    });</script></body>"""
    copy, frame = folder / "copy.html", folder / "frame.html"
    copy.write_text(page.read_text().replace("</body>", script))
    frame.write_text(f"""<!DOCTYPE html><meta name="color-scheme" content="light dark">
        <script>addEventListener("message", event => {{ document.title = event.data; }});</script>
        <iframe src="copy.html" style="width: {width}px; height: 800px; border: 0"></iframe>""")
    document = chromium(frame, "--dump-dom", *options)
    found = re.search(r"<title>(.*?)</title>", document)
    assert found is not None, document
    return json.loads(html.unescape(found[1]))


def test_a_phone_shows_the_page_without_scrolling_sideways(folder: Path, tmp_path: Path) -> None:
    sizes = measured(folder / "report.html", tmp_path, 390)
    assert sizes["window"] == 390
    assert sizes["content"] == 390
    assert sizes["widest"] <= 390


def test_figures_follow_the_page_into_the_dark(folder: Path, tmp_path: Path) -> None:
    papers = []
    for scheme in ("0", "1"):
        setting = f"--blink-settings=preferredColorScheme={scheme}"
        colours = measured(folder / "report.html", tmp_path, 1200, setting)
        assert colours["ink"] == colours["text"] != colours["paper"]
        papers.append(colours["paper"])
    assert papers == ["rgb(20, 23, 27)", "rgb(255, 255, 255)"]


def test_a_browser_reads_the_tables_from_a_file(folder: Path, tmp_path: Path) -> None:
    results = json.loads((folder / "results.json").read_text())
    copy = shutil.copy(folder / "report.html", tmp_path)
    document = chromium(Path(copy), "--dump-dom")
    for row in results["rows"]:
        cell = f"{row['mean']:.2f}&nbsp;±&nbsp;{row['std']:.2f}</td>"
        assert f'{row["label"]}</th>\n<td class="number">{cell}' in document


def test_a_browser_draws_the_page_from_a_file(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copy(folder / "report.html", tmp_path)
    target = tmp_path / "page.png"
    chromium(Path(copy), f"--screenshot={target}", "--window-size=1200,4000")
    picture = imread(target)[:, :, :3]
    assert picture.shape == (4000, 1200, 3)
    # Of every thousand rows, some are inked: tables and figures go on to the end.
    for part in picture.reshape(4, 1000, 1200, 3):
        assert (part.min(axis=2) < 0.5).any(axis=1).mean() > 0.2
