"""What the service answers is what the model says, and a bad request names its field."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from conftest import CLASSES, MARKUP, ODD
from dropnode import GrandClassifier, TableModel, read_tables
from dropnode.analysis.explain import explain
from dropnode.errors import ModelError
from dropnode.serve.drawing import draw_around
from dropnode.serve.explorer import Explorer
from dropnode.serve.served import Served


def fields(answer: Any) -> list[str]:
    return [each["field"] for each in answer.json()["problems"]]


def test_the_model_tells_its_sizes_classes_and_measures(
    client: TestClient, explorer: Explorer
) -> None:
    assert client.get("/health").json()["status"] == "ok"
    found, graph = client.get("/model").json(), explorer.served.model.classifier.graph_
    assert (found["nodes"], found["edges"], found["labels"]) == (40, graph.num_edges, 12)
    assert [each["name"] for each in found["classes"]] == list(CLASSES)
    assert sum(found["confidence"]) == sum(each["predicted"] for each in found["classes"]) == 40
    assert np.sum(found["metrics"]["confusion"]) == found["metrics"]["labels"] == 12
    assert (found["id_column"], found["columns"]) == ("id", ["age"])


def test_pages_together_are_the_list_and_every_condition_holds(
    client: TestClient, folder: Path
) -> None:
    predictions = TableModel.load(folder).predict()
    sure = predictions.probabilities.max(axis=1)
    wanted = {
        str(name)
        for name, predicted, share in zip(predictions.ids, predictions.predicted, sure, strict=True)
        if "n" in str(name) and predicted == "mate" and share >= 0.6
    }
    asked = {"query": "N", "predicted": "mate", "least": 0.6, "order": "least-confident"}
    found: list[dict[str, Any]] = []
    while True:
        answer = client.get("/nodes", params=asked | {"offset": len(found), "limit": 4}).json()
        assert answer["total"] == len(wanted)
        if not answer["nodes"]:
            break
        found += answer["nodes"]
    assert {each["id"] for each in found} == wanted
    shares = [each["confidence"] for each in found]
    assert shares == sorted(shares)


@pytest.mark.parametrize("name", ODD)
def test_a_node_is_found_by_its_id_whatever_its_letters(
    client: TestClient, explorer: Explorer, name: str
) -> None:
    path = f"%2F{name}" if name == ".." else quote(name, safe="")
    if "%" in name:
        path = quote(path)  # Starlette's client takes off the quotes twice, servers do so once
    found = client.get(f"/nodes/{path}").json()
    at = explorer.served.position[name]
    assert found["id"] == name
    assert list(found["probabilities"].values()) == pytest.approx(
        explorer.served.predictions.probabilities[at].tolist(), abs=1e-6
    )
    graph = explorer.served.model.classifier.graph_
    near = {str(graph.ids[other]) for other in graph.adjacency[[at]].indices}
    assert {each["id"] for each in found["neighbours"]} == near
    assert found["attributes"]["note"] == f"{MARKUP} {at}"
    # The explanation sums to the score.
    told, exact = found["explanation"], explain(explorer.served.model.classifier.method_, at)
    total = sum(each["amount"] for each in told["nodes"]) + told["other_nodes"] + told["bias"]
    assert total == pytest.approx(told["score"], abs=1e-4) == pytest.approx(exact.score, abs=1e-4)
    assert client.get("/nodes", params={"query": name}).json()["nodes"][0]["id"] == name


def test_new_nodes_get_what_the_model_predicts(client: TestClient, folder: Path) -> None:
    rows = [{"id": "new-1", "age": 21.5}, {"id": "new-2", "age": 49.0}]
    edges = [
        {"source": "new-1", "target": "n6"},
        {"source": "new-2", "target": "n7", "weight": 2.0},
        {"source": "new-1", "target": "new-2"},
    ]
    answer = client.post("/predict", json={"nodes": rows, "edges": edges}).json()
    ends = {key: [each[key] for each in edges] for key in ("source", "target")}
    table = pa.table(ends | {"weight": [1.0, 2.0, 1.0]})
    direct = TableModel.load(folder).predict_new(pa.Table.from_pylist(rows), table)
    assert [each["id"] for each in answer["predictions"]] == ["new-1", "new-2"]
    for each, shares in zip(answer["predictions"], direct.probabilities, strict=True):
        assert list(each["probabilities"].values()) == pytest.approx(shares.tolist(), abs=1e-6)
    alone = client.post("/predict", json={"nodes": rows[:1], "edges": edges[:1]}).json()
    assert alone["predictions"][0]["id"] == "new-1"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/labels", {"labels": [{"id": "nobody", "label": "mate"}]}, "body.labels.0.id"),
        ("/labels", {"labels": [{"id": "n7", "label": "cola"}]}, "body.labels.0.label"),
        ("/labels", {"labels": [{"id": "n7", "label": "mate", "x": 1}]}, "body.labels.0.x"),
        ("/labels", {"labels": []}, "body.labels"),
        ("/labels", {}, "body.labels"),
        ("/predict", {"nodes": []}, "body.nodes"),
        ("/predict", {"nodes": [{}]}, "body"),
        ("/predict", {"nodes": [{"id": "q", "age": 1}], "edges": [{"source": "q"}]}, "target"),
        ("/predict", {"nodes": [{"id": "q", "age": "x"}]}, "body"),
        ("/predict", {"nodes": [{"id": "q", "age": 1}, {"id": "q", "age": 1}]}, "body"),
        ("/predict", {"nodes": [{"id": "q", "age": 1}], "vectors": [[1.0]]}, "body"),
    ],
)
def test_a_bad_write_names_its_field_and_changes_nothing(
    client: TestClient, path: str, body: Any, field: str
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 422, answer.text
    assert any(each.endswith(field) for each in fields(answer)), answer.text
    assert client.get("/labels").json()["entries"] == 0


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("least=2", "query.least"),
        ("limit=0", "query.limit"),
        ("limit=501", "query.limit"),
        ("offset=-1", "query.offset"),
        ("order=up", "query.order"),
        ("predicted=cola", "query"),
        (f"query={'x' * 1001}", "query.query"),
    ],
)
def test_a_bad_search_names_its_field(client: TestClient, query: str, field: str) -> None:
    answer = client.get(f"/nodes?{query}")
    assert (answer.status_code, fields(answer)) == (422, [field])


def test_what_is_not_there_is_404_and_other_methods_405(client: TestClient) -> None:
    for path in ("/nodes/nobody", "/nothing", "/page/../app.py", "/page/..%2fapp.py"):
        assert client.get(path).status_code == 404, path
    headers = {"content-type": "application/json"}
    assert client.delete("/model", headers=headers).status_code == 405
    assert client.post("/labels", content=b"{", headers=headers).status_code == 422
    assert client.post("/labels", content=b"\xff", headers=headers).status_code == 422


def test_no_answer_has_a_path_of_the_machine(client: TestClient, folder: Path) -> None:
    answers = [client.get(path) for path in ("/model", "/nodes", "/graph", "/", "/openapi.json")]
    answers += [client.get(f"/export/{name}") for name in ("snapshot.html", "graph.gexf")]
    answers += [
        client.get("/nodes/n6"),
        client.get("/nodes/nobody"),
        client.post("/predict", json={"nodes": [{"id": "q", "age": "x"}]}),
    ]
    for answer in answers:
        assert str(folder.parent) not in answer.text, answer.url
        assert not re.search(r"Traceback|site-packages|\.py\b", answer.text), answer.url


def test_a_label_is_shown_before_and_after_it_waits(client: TestClient, folder: Path) -> None:
    given = {"labels": [{"id": MARKUP, "label": "mate"}, {"id": "n20", "label": CLASSES[0]}]}
    answer = client.post("/labels", json=given)
    assert answer.status_code == 201
    assert [each["id"] for each in answer.json()["waiting"]] == [MARKUP, "n20"]
    assert client.get("/nodes/n20").json()["now"] == CLASSES[0]
    assert client.get("/nodes/n20").json()["label"] is None
    suggested = [each["id"] for each in client.get("/work/next").json()]
    assert suggested
    assert "n20" not in suggested
    # The same label as in training waits for nothing.
    client.post("/labels", json={"labels": [{"id": MARKUP, "label": CLASSES[0]}]})
    assert [each["id"] for each in client.get("/labels").json()["waiting"]] == ["n20"]


def test_the_wrong_label_is_the_first_that_looks_wrong(client: TestClient) -> None:
    first = client.get("/work/suspicious").json()[0]
    assert (first["id"], first["label"], first["held_out"]) == ("n11", CLASSES[0], "mate")


def test_held_out_classes_are_those_of_the_file_also_where_two_are_equally_probable(
    folder: Path,
) -> None:
    path = folder / "suspicious_labels.csv"
    head, *rows = path.read_text().splitlines()
    names = head.split(",")
    changed = [dict(zip(names, row.split(","), strict=True)) for row in rows]
    tie = next(each for each in changed if each["label"] == "mate")
    tie |= {"predicted": CLASSES[0], "suggested": CLASSES[0], "log_odds": "-0.0"}
    lines = [names, *(list(each.values()) for each in changed)]
    path.write_text("\n".join(",".join(each) for each in lines) + "\n")
    served = Served.read(folder)
    at = served.position[tie["id"]]
    assert served.name(served.judged[at]) == CLASSES[0]
    assert at in served.suspicious()
    # Earlier files have no predicted class.
    path.write_text("\n".join(",".join(each[:2] + each[3:]) for each in lines) + "\n")
    before = Served.read(folder)
    others = np.arange(len(served.ids)) != at
    np.testing.assert_array_equal(before.judged[others], served.judged[others])


def test_a_model_whose_names_have_carriage_returns_is_served(tmp_path: Path) -> None:
    ids = [f"n\r{at}" for at in range(8)]
    labels = [["te\ra", "mate"][at % 2] for at in range(8)]
    nodes = pa.table(
        {"id": ids, "age": [20.0 + 30 * (at % 2) for at in range(8)], "drinks": labels}
    )
    edges = pa.table({"source": ids[:-2], "target": ids[2:]})
    model = TableModel.fit(
        read_tables(nodes, edges, label="drinks"), GrandClassifier(random_state=0, max_epochs=2)
    )
    model.save(tmp_path / "model")
    served = Served.read(tmp_path / "model")
    assert {*served.ids} == {*ids}
    assert (served.judged >= 0).all()


def test_a_graph_of_which_all_is_around_a_node_has_its_own_edges(tmp_path: Path) -> None:
    nodes = pa.table({"id": [*"abcdef"], "age": [*range(6)], "drinks": ["tea", "mate"] * 3})
    edges = pa.table({"source": [*"abcde"], "target": [*"bcdef"]})
    tables = read_tables(nodes, edges, label="drinks")
    classifier = GrandClassifier(random_state=0, max_epochs=2)
    TableModel.fit(tables, classifier, assess=False).save(tmp_path / "model")
    served = Served.read(tmp_path / "model")
    found = draw_around(served, served.position["d"])
    ids = found["ids"]
    assert {*ids} == {*"abcdef"}
    ends = [ids[at] for at in found["edges"]]
    drawn = {frozenset(pair) for pair in zip(ends[::2], ends[1::2], strict=True)}
    assert drawn == {frozenset(pair) for pair in ("ab", "bc", "cd", "de", "ef")}
    assert [found["degree"][ids.index(name)] for name in "abcdef"] == [1, 2, 2, 2, 2, 1]


def test_a_confidence_is_in_one_bar_even_if_rounding_took_it_above_one(explorer: Explorer) -> None:
    shares = np.full(40, 0.15)
    shares[:3] = 1.0 + 1e-12, 0.5, np.nextafter(0.5, 0.0)
    counts = dataclasses.replace(explorer.served, confidence=shares).summary()["confidence"]
    assert sum(counts) == 40
    assert [counts[at] for at in (3, 9, 10, 19)] == [37, 1, 1, 1]


def test_a_failure_is_told_without_a_path_and_logged_with_it(
    client: TestClient,
    explorer: Explorer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def damaged(*_: Any) -> None:
        raise ModelError("/some/where is damaged")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "/some/where")

    explorer.explained = damaged  # type: ignore[assignment]
    answer = client.get("/nodes/n6")
    assert (answer.status_code, fields(answer)) == (503, ["request"])
    assert "/some/where" not in answer.text
    assert "/some/where is damaged" in caplog.text
    explorer.explained = full  # type: ignore[assignment]
    assert "the answer cannot be made: No space left" in client.get("/nodes/n6").text
    monkeypatch.setattr(explorer, "add_labels", full)
    answer = client.post("/labels", json={"labels": [{"id": "n7", "label": "mate"}]})
    assert "nothing was stored: No space left" in answer.text


def test_a_request_reads_one_model_although_another_takes_its_place(
    client: TestClient, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = dataclasses.replace(explorer.served, predicted=1 - explorer.served.predicted)
    found = explorer.given

    def exchanged(served: Served) -> dict[str, str | None]:
        explorer.served = other
        return found(served)

    monkeypatch.setattr(explorer, "given", exchanged)
    before = explorer.served
    answer = client.get("/export/snapshot.html").text
    data = re.search(r'id="snapshot">(.*?)</script>', answer, re.DOTALL)
    assert data is not None
    answers = json.loads(data[1])
    assert answers["/graph"]["predicted"] == before.predicted.tolist()
    for path, each in answers.items():
        if path.startswith("/nodes/"):
            assert (
                each["predicted"] == before.classes[before.predicted[before.position[each["id"]]]]
            )


def test_a_graph_that_is_too_large_is_drawn_around_a_node(
    client: TestClient, explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = client.get("/graph").json()
    graph = explorer.served.model.classifier.graph_
    assert (len(whole["ids"]), len(whole["edges"])) == (40, 2 * graph.num_edges)
    monkeypatch.setattr("dropnode.serve.drawing.MOST_NODES", 10)
    monkeypatch.setattr("dropnode.serve.drawing.AROUND", 5)
    assert fields(client.get("/graph")) == ["query.around"]
    part = client.get("/graph", params={"around": "n6"}).json()
    near = {str(graph.ids[other]) for other in graph.adjacency[[6]].indices}
    assert part["ids"][0] == part["middle"] == "n6"
    assert len(part["ids"]) == 5
    assert near & {*part["ids"]}
    assert client.get("/graph", params={"around": "nobody"}).status_code == 404
