"""The page in a browser: every view, on a phone, in the dark, by keyboard, with markup in names."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browser import (
    DESK,
    PHONE,
    asked,
    check,
    dress,
    go,
    press,
    tab_to,
    until,
    wait_for,
)
from selenium.webdriver.common.keys import Keys

from conftest import CLASSES, MARKUP, Service
from dropnode.serve.retraining import Progress

VIEWS = {
    "overview": "overview",
    "graph": f"graph?node={quote(MARKUP)}",
    "nodes": f"nodes?label={quote(CLASSES[0])}&order=least-confident",
    "node": f"node?id={quote(MARKUP)}",
    "next": "work",
    "suspicious": "work?list=suspicious",
}
SCREENS = {
    "desk": (DESK, False),
    "dark-phone": (PHONE, True),
    "dark-desk": (DESK, True),
    "phone": (PHONE, False),
}
# The first two have every width and every colour between them.
EACH = [
    *list(SCREENS)[:2],
    *(pytest.param(name, marks=pytest.mark.slow) for name in list(SCREENS)[2:]),
]


@pytest.mark.parametrize("screen", EACH)
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_on_every_screen(window: Any, shared: Service, view: str, screen: str) -> None:
    size, dark = SCREENS[screen]
    dress(window, size, dark=dark)
    go(window, shared.address, VIEWS[view])
    check(window, shared.address)


def test_markup_in_names_and_texts_is_shown_as_it_is(window: Any, shared: Service) -> None:
    shown = "return document.querySelector(arguments[0]).innerText"
    go(window, shared.address, VIEWS["node"])
    assert window.execute_script(shown, "h1") == MARKUP
    assert CLASSES[0] in window.execute_script(shown, ".view-node")
    assert f"{MARKUP} 0" in window.execute_script(shown, ".attributes")
    assert MARKUP in window.title
    go(window, shared.address, VIEWS["graph"])
    assert MARKUP in window.execute_script(shown, ".beside")
    assert CLASSES[0] in window.execute_script(shown, ".legend")
    go(window, shared.address, "nodes?predicted=%3Cimg%20src%3Dx%20onerror%3D%22hacked%3D1%22%3E")
    assert "<img src=x" in window.execute_script(shown, "[role=alert]")
    assert window.execute_script("return window.hacked") is None


@pytest.mark.parametrize(
    ("progress", "screen"),
    [
        (Progress("running", 2, 6), "dark-phone"),
        (Progress("failed", problem=f"no label of {MARKUP}"), "dark-phone"),
        (Progress("ready"), "desk"),
        (Progress("ready"), "dark-phone"),
    ],
)
def test_retraining_in_every_state(
    window: Any, shared: Service, monkeypatch: pytest.MonkeyPatch, progress: Progress, screen: str
) -> None:
    explorer = shared.explorer
    assert explorer.workplace is not None
    if progress.state == "ready" and not explorer.workplace.candidate.exists():
        shutil.copytree(explorer.workplace.model, explorer.workplace.candidate)
    monkeypatch.setattr(explorer.retraining, "_progress", progress)
    size, dark = SCREENS[screen]
    dress(window, size, dark=dark)
    go(window, shared.address, "work")
    until(window, f"return document.querySelector('[data-state={progress.state}]')")
    check(window, shared.address)


def test_files_are_downloaded_and_a_snapshot_needs_no_service(
    window: Any, shared: Service, downloads: Path
) -> None:
    go(window, shared.address, "overview")
    for name in ("predictions.csv", "graph.gexf", "snapshot.html"):
        tab_to(window, ".buttons button")
        press(window, Keys.ENTER)
        said = f"{name} is downloaded"
        until(window, f"return document.getElementById('live').textContent === '{said}'")
    wait_for(downloads / "snapshot.html")
    rows = list(csv.DictReader((downloads / "predictions.csv").open(encoding="utf-8")))
    assert len(rows) == len(shared.explorer.served.ids)
    address = (downloads / "snapshot.html").as_uri()
    asked(window)
    for view, screen in (
        ("overview", "desk"),
        ("graph", "dark-phone"),
        ("node", "desk"),
    ):
        size, dark = SCREENS[screen]
        dress(window, size, dark=dark)
        go(window, address, VIEWS[view])
        check(window, address)


def test_the_way_from_the_top_to_a_node_by_keyboard(window: Any, shared: Service) -> None:
    go(window, shared.address, "overview")
    press(window, Keys.TAB)
    assert window.switch_to.active_element.text == "Skip to content"
    press(window, Keys.ENTER)
    assert window.switch_to.active_element.get_attribute("id") == "view"
    window.execute_script("document.activeElement.blur()")
    go(window, shared.address, "overview")
    tab_to(window, "nav a[href='#/graph']")
    press(window, Keys.ENTER)
    until(window, "return document.querySelector('.picture')?.dataset.drawn === 'yes'")
    # After a new view, the next Tab goes into it.
    tab_to(window, ".picture", 12)
    press(window, "n", "n", "p", "+", "-", "0", Keys.ARROW_LEFT)
    first = shared.explorer.served.ids[0]
    told = window.execute_script("return document.querySelector('.beside').innerText")
    assert told.startswith(first)
    press(window, Keys.ENTER)
    until(window, "return document.querySelector('main')?.dataset.view === 'node'")
    assert window.execute_script("return document.querySelector('h1').innerText") == first


def test_a_search_by_keyboard(window: Any, shared: Service) -> None:
    go(window, shared.address, "nodes")
    tab_to(window, "input[name=query]")
    press(window, "with sp", Keys.ENTER)
    until(window, "return document.querySelector('main tbody')?.rows.length === 1")
    tab_to(window, "tbody a")
    press(window, Keys.ENTER)
    until(window, "return document.querySelector('h1')?.innerText === 'with space'")


def test_labels_and_a_retraining_by_keyboard(
    window: Any, own: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, str | None]] = []

    def start(labels: dict[str, str | None]) -> bool:
        started.append(labels)
        monkeypatch.setattr(own.explorer.retraining, "_progress", Progress("running", 1, 6))
        return True

    monkeypatch.setattr(own.explorer.retraining, "start", start)
    go(window, own.address, "work")
    rows = [each.text for each in window.find_elements("css selector", ".work li a")[:2]]
    group = tab_to(window, ".labelling button").find_element("xpath", "..")
    press(window, "2")
    until(window, "return document.querySelector('.labelling [aria-pressed=true]')")
    # The focus stays on the class that was chosen, so that Tab goes on to the next node.
    here = window.switch_to.active_element
    assert here.text == CLASSES[1]
    assert here.find_element("xpath", "..") == group
    tab_to(window, ".work li:nth-child(2) .labelling button", 5)
    press(window, Keys.ENTER)
    until(window, "return document.querySelectorAll('.labelling [aria-pressed=true]').length === 2")
    given = {rows[0]: CLASSES[1], rows[1]: CLASSES[0]}
    assert own.explorer.given(own.explorer.served) == given
    go(window, own.address, "work")
    tab_to(window, "[aria-label=Retraining] button")
    press(window, Keys.ENTER)
    until(window, "return document.querySelector('[data-state=running] progress')")
    assert started == [given]
    # What has replaced the button has the focus, not the top of the page.
    held = "return document.querySelector('[data-state]').contains(document.activeElement)"
    assert window.execute_script(held)


@pytest.mark.slow
def test_a_person_labels_retrains_and_keeps_the_new_model(window: Any, own: Service) -> None:
    go(window, own.address, "work")
    tab_to(window, ".labelling button")
    press(window, "2")
    until(window, "return document.querySelector('.labelling [aria-pressed=true]')")
    (name,) = own.explorer.given(own.explorer.served)
    window.execute_script("document.querySelector('[data-state=idle] button').click()")
    until(window, "return document.querySelector('[data-state=ready] .primary')", 300)
    check(window, own.address)
    window.execute_script("document.querySelector('.primary').click()")
    until(window, "return document.querySelector('[data-state=idle]')")
    go(window, own.address, f"node?id={quote(name)}")
    verdict = window.execute_script("return document.querySelector('.verdict').textContent")
    assert f"Label: {CLASSES[1]}." in verdict
    assert json.loads((own.explorer.workplace.model / "metrics.json").read_text())["labels"] == 13  # type: ignore[union-attr]


def test_a_graph_that_is_too_large_to_draw_asks_for_a_node(
    window: Any, shared: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dropnode.serve.drawing.MOST_NODES", 10)
    window.get(f"{shared.address}#/graph")
    until(window, "return document.querySelector('main')?.dataset.view === 'graph'")
    tab_to(window, "input[name=id]")
    press(window, "n6", Keys.ENTER)
    until(window, "return document.querySelector('.picture')?.dataset.drawn === 'yes'")
    told = window.execute_script("return document.querySelector('.beside').innerText")
    assert told.startswith("n6 ")
    check(window, shared.address)
