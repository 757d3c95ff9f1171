"""The page when an answer does not come, a name is not found, a token is wrong, or work ends."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from browser import asked, barriers, go, press, tab_to, until
from selenium.webdriver.common.keys import Keys

from conftest import Service
from dropnode import GrandClassifier, TableModel, read_tables
from dropnode.serve.explorer import Explorer
from dropnode.serve.retraining import Progress

TOKEN = "correct-horse=battery+staple/~._"
HERE = "return document.activeElement.matches(arguments[0])"
SAID = "return document.getElementById('live').textContent"
TOLD = "return document.querySelector('main [role=alert]')?.innerText"


def find(window: Any, name: str) -> None:
    """Write a name into the search of the graph and submit it."""
    field = window.find_element("css selector", "input[name=id]")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(name, Keys.ENTER)


def test_after_a_name_that_no_node_has_another_is_found(window: Any, shared: Service) -> None:
    go(window, shared.address, "graph")
    find(window, "nobody")
    until(window, f"{SAID} === 'No node matches'")
    find(window, "n12")
    until(window, "return location.hash === '#/graph?node=n12'")


def test_a_search_that_fails_says_so_and_can_be_sent_again(
    window: Any, shared: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(window, shared.address, "graph")
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> None:
            raise OSError(5, "Input/output error")

        patch.setattr("dropnode.serve.app.Search", fail)
        find(window, "n12")
        assert "Input/output error" in until(window, TOLD)
    press(window, Keys.ENTER)
    until(window, "return location.hash === '#/graph?node=n12'")


@pytest.fixture
def guarded(saved: Path, tmp_path: Path) -> Iterator[Service]:
    """A service that wants a token."""
    shutil.copytree(saved, tmp_path / "model")
    found = Service(Explorer(tmp_path / "model"), TOKEN)
    yield found
    found.end()


@pytest.mark.parametrize("wrong", ["пароль-пароль-пароль", "another-token-of-someone"])
def test_a_mistyped_token_is_told_and_the_right_one_opens_the_page(
    window: Any, guarded: Service, wrong: str
) -> None:
    window.get(guarded.address)
    until(window, "return document.querySelector('input[name=token]')")
    assert not window.execute_script(TOLD)
    window.switch_to.active_element.send_keys(wrong, Keys.ENTER)
    assert "oken" in until(window, TOLD)
    # The field has the focus still, so that one can write at once.
    assert window.execute_script(HERE, "input[name=token]")
    assert barriers(window) == []
    field = window.switch_to.active_element
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(TOKEN, Keys.ENTER)
    until(window, "return document.querySelector('.view-overview')")
    assert window.execute_script(HERE, "#view")


@pytest.mark.parametrize("wrong", ["%", "100%-of-the-letters", "пароль"])
def test_an_address_with_a_wrong_token_asks_for_one(
    window: Any, guarded: Service, wrong: str
) -> None:
    window.get(f"{guarded.address}#token={wrong}")
    until(window, "return document.querySelector('input[name=token]')")
    assert "token" not in window.current_url
    window.get(f"{guarded.address}#token={TOKEN}")
    until(window, "return document.querySelector('.view-overview')")


def test_an_answer_that_does_not_come_does_not_end_the_progress(
    window: Any, shared: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer, state = shared.explorer, {"fails": False}
    answer = explorer.status

    def status() -> dict[str, Any]:
        if state["fails"]:
            raise OSError(5, "Input/output error")
        return answer()

    monkeypatch.setattr(explorer, "status", status)
    monkeypatch.setattr(explorer.retraining, "_progress", Progress("running", 2, 6))
    go(window, shared.address, "work")
    until(window, "return document.querySelector('[data-state=running] progress')")
    state["fails"] = True
    assert "Input/output error" in until(window, TOLD)
    # Told once, however often it fails.
    time.sleep(2.5)
    assert len(window.find_elements("css selector", "[data-state] [role=alert]")) == 1
    state["fails"] = False
    monkeypatch.setattr(explorer.retraining, "_progress", Progress("running", 5, 6))
    until(window, "return document.querySelector('[data-state=running] progress')?.value === 5")
    assert not window.execute_script(TOLD)


def test_progress_is_not_asked_for_after_the_view_was_left(
    window: Any, shared: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer = shared.explorer
    answer, waits, go_on = explorer.status, threading.Event(), threading.Event()
    go_on.set()

    def status() -> dict[str, Any]:
        if not go_on.is_set():
            waits.set()
            go_on.wait(60)
        return answer()

    monkeypatch.setattr(explorer, "status", status)
    monkeypatch.setattr(explorer.retraining, "_progress", Progress("running", 2, 6))
    go(window, shared.address, "work")
    go_on.clear()
    assert waits.wait(30)
    # The view is left while an answer is under way.
    window.execute_script("location.hash = '#/overview'")
    until(window, "return document.querySelector('main')?.dataset.view === 'overview'")
    asked(window)
    go_on.set()
    time.sleep(2.5)
    assert not [each for each in asked(window) if each.endswith("/retrain")]


def test_the_focus_stays_where_a_file_was_asked_for(window: Any, shared: Service) -> None:
    go(window, shared.address, "overview")
    tab_to(window, ".buttons button")
    press(window, Keys.ENTER)
    until(window, f"{SAID} === 'predictions.csv is downloaded'")
    assert until(window, HERE.replace("arguments[0]", "'.buttons button:enabled'"))
    assert window.switch_to.active_element.text == "Predictions as CSV"


def test_who_keeps_a_new_model_is_told_and_goes_on_in_the_view(window: Any, own: Service) -> None:
    place, retraining = own.explorer.workplace, own.explorer.retraining
    assert place is not None
    assert retraining is not None
    shutil.copytree(place.model, place.candidate)
    retraining._progress = Progress("ready")
    go(window, own.address, "work")
    tab_to(window, ".primary")
    press(window, Keys.ENTER)
    until(window, f"{SAID} === 'The new model is kept'")
    assert window.execute_script(HERE, "#view")
    assert window.execute_script("return document.querySelector('[data-state=idle]')")


def test_each_bar_opens_as_many_nodes_as_it_shows(
    window: Any, own: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = own.explorer.served
    bounds = np.arange(21) / 20
    served.confidence[:] = np.concatenate([bounds, bounds[:19] + 0.01])
    go(window, own.address, "overview")
    shown, opened = [], []
    for at in range(20):
        bar = window.find_elements("css selector", ".chart a")[at]
        shown.append(int(bar.get_attribute("aria-label").split()[0]))
        window.execute_script("location.hash = arguments[0].getAttribute('href')", bar)
        until(window, "return document.querySelector('main')?.dataset.view === 'nodes'")
        told = window.find_element("css selector", "main [role=status]").text
        opened.append(int(told.split()[0]))
        window.back()
        until(window, "return document.querySelector('main')?.dataset.view === 'overview'")
    assert opened == shown
    assert sum(shown) == len(served.ids)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of a model with more classes than there are buttons, and nothing held out."""
    names = [f"class {at}" for at in range(14)]
    count = 5 * len(names)
    values = np.random.default_rng(0).normal(size=count).round(3).tolist()
    labels = [names[at] if at < len(names) else None for at in range(count)]
    ids = [f"n{at}" for at in range(count)]
    nodes = pa.table({"id": ids, "value": values, "kind": labels})
    edges = pa.table({"source": ids[:-1], "target": ids[1:]})
    tables = read_tables(nodes, edges, label="kind")
    model = tmp_path_factory.mktemp("many") / "model"
    TableModel.fit(tables, GrandClassifier(random_state=0, max_epochs=2), assess=False).save(model)
    found = Service(Explorer(model))
    yield found
    found.end()


def test_a_class_of_a_long_list_is_stored_when_a_person_says_so(window: Any, many: Service) -> None:
    explorer = many.explorer
    assert explorer.workplace is not None
    go(window, many.address, "node?id=n20")
    tab_to(window, ".labelling select")
    press(window, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    time.sleep(0.5)
    assert len(explorer.workplace.journal) == 0
    assert tab_to(window, ".labelling button", 1).text == "Label"
    press(window, Keys.ENTER)
    until(window, f"{SAID} === 'n20 is labelled {explorer.served.classes[2]}'")
    assert explorer.given(explorer.served) == {"n20": explorer.served.classes[2]}
    assert window.execute_script(HERE, ".labelling select")
    assert barriers(window) == []


def test_a_list_that_is_cut_says_so(window: Any, many: Service) -> None:
    go(window, many.address, "work")
    heads = [each.text for each in window.find_elements("css selector", "main h2")]
    assert "Label this next (the first 50)" in heads
    go(window, many.address, "work?list=suspicious")
    heads = [each.text for each in window.find_elements("css selector", "main h2")]
    assert "Labels that look wrong (0)" in heads


def test_without_held_out_labels_the_page_says_how_to_get_them(window: Any, many: Service) -> None:
    go(window, many.address, "overview")
    assert "--assess" in window.execute_script("return document.body.innerText")
