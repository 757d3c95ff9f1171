"""Files to take away: complete, and markup in names stays text."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from starlette.testclient import TestClient

from conftest import CLASSES, MARKUP
from dropnode.serve.explorer import Explorer
from dropnode.serve.files import page_files

PAGE = Path(__file__).parents[2] / "src" / "dropnode" / "serve" / "page"


def test_gexf_has_every_node_edge_and_prediction(client: TestClient, explorer: Explorer) -> None:
    answer = client.get("/export/graph.gexf")
    assert "attachment" in answer.headers["content-disposition"]
    found = nx.read_gexf(io.BytesIO(answer.content))
    served, graph = explorer.served, explorer.served.model.classifier.graph_
    assert {values["label"] for _, values in found.nodes(data=True)} == {*served.ids}
    values = found.nodes["0"]
    assert values["label"] == MARKUP
    assert values["label_given"] == CLASSES[0]
    assert values["predicted"] == served.row(0)["predicted"]
    edges = {frozenset(map(int, each)) for each in found.edges}
    assert edges == {
        frozenset(map(int, each)) for each in zip(*graph.adjacency.nonzero(), strict=True)
    }


def test_predictions_are_those_of_the_model(client: TestClient, folder: Path) -> None:
    answer = client.get("/export/predictions.csv")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert rows == list(csv.DictReader((folder / "predictions.csv").open(encoding="utf-8")))


def test_a_snapshot_is_one_file_whose_data_cannot_become_markup(client: TestClient) -> None:
    text = client.get("/export/snapshot.html").text
    assert MARKUP not in text
    assert CLASSES[0] not in text
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", text.partition("<script")[0])
    data = re.search(r'id="snapshot">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    answers = json.loads(data[1])
    assert answers["/graph"]["ids"][0] == MARKUP
    # One element per script, none of which a script has ended early.
    assert text.count("<script") == text.count("</script>") == 4


def test_a_snapshot_leaves_out_what_there_is_no_time_to_explain(
    client: TestClient, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explained(*_: Any) -> dict[str, Any]:
        time.sleep(1.0)
        return {}

    explorer.explained = explained  # type: ignore[assignment]
    monkeypatch.setattr("dropnode.serve.app.EXPLAINING", 1.5)
    text = client.get("/export/snapshot.html").text
    data = re.search(r'id="snapshot">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    nodes = [each for path, each in json.loads(data[1]).items() if path.startswith("/nodes/")]
    assert len(nodes) > 20
    assert 1 <= sum("explanation" in each for each in nodes) <= 2


def test_vendored_libraries_are_those_that_their_table_names() -> None:
    for folder in (PAGE / "vendor", Path(__file__).parent / "vendor"):
        table = (folder / "README.md").read_text(encoding="utf-8")
        scripts = list(folder.glob("*.js"))
        assert scripts
        for path in scripts:
            assert f"`{hashlib.sha256(path.read_bytes()).hexdigest()}`" in table, path
            assert (folder / f"{path.name.partition('.')[0]}.LICENSE.txt").exists()


def test_the_page_asks_no_other_machine_for_anything() -> None:
    for name, content in page_files().items():
        if not name.startswith("vendor/"):
            found = set(re.findall(r"https?://[\w./-]+", content.decode()))
            assert found <= {"http://www.w3.org/2000/svg"}, name


@pytest.mark.parametrize("name", sorted(path.name for path in PAGE.glob("*.js")))
def test_modules_of_the_page_never_write_markup(name: str) -> None:
    text = (PAGE / name).read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
