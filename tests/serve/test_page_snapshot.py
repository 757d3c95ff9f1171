"""A snapshot in a browser answers as the service does, from what is inside of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import go, until
from selenium.webdriver.common.keys import Keys
from starlette.testclient import TestClient

from dropnode.serve.explorer import Explorer
from dropnode.serve.files import snapshot


def test_a_node_is_found_by_its_id_before_those_that_contain_it(
    window: Any, client: TestClient, tmp_path: Path
) -> None:
    graph = client.get("/graph").json()
    graph["ids"][-1] = "n"
    path = tmp_path / "snapshot.html"
    path.write_bytes(snapshot({"/model": client.get("/model").json(), "/graph": graph}))
    go(window, path.as_uri(), "graph")
    field = window.find_element("css selector", "input[name=id]")
    field.send_keys("n", Keys.ENTER)
    until(window, "return location.hash === '#/graph?node=n'")


def test_a_search_in_a_snapshot_without_a_graph_says_that_it_has_none(
    window: Any, client: TestClient, tmp_path: Path
) -> None:
    model = client.get("/model").json() | {"drawn_whole": False}
    path = tmp_path / "snapshot.html"
    path.write_bytes(snapshot({"/model": model}))
    window.get(f"{path.as_uri()}#/graph")
    until(window, "return document.querySelector('main')?.dataset.view === 'graph'")
    window.find_element("css selector", "input[name=id]").send_keys("n6", Keys.ENTER)
    told = until(window, "return document.querySelector('main [role=alert]')?.innerText")
    assert "this snapshot does not have it" in told


def test_neighbours_over_edges_that_are_not_drawn_count(
    window: Any,
    client: TestClient,
    explorer: Explorer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("dropnode.serve.drawing.MOST_EDGES", 5)
    graph = client.get("/graph").json()
    assert graph["edges_left_out"] > 0
    path = tmp_path / "snapshot.html"
    path.write_bytes(snapshot({"/model": client.get("/model").json(), "/graph": graph}))
    degree = client.get("/nodes/n6").json()["degree"]
    go(window, path.as_uri(), "node?id=n6")
    heads = [each.text for each in window.find_elements("css selector", "main h2")]
    assert f"Neighbours ({degree})" in heads
