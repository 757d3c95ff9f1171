"""Requests that the OpenAPI permits, and requests that it does not: none is an error inside."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from starlette.testclient import TestClient

from conftest import CLASSES, ODD
from dropnode.serve.app import create_app
from dropnode.serve.explorer import Explorer
from dropnode.serve.guard import Guard


@pytest.fixture
def guarded(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> Guard:
    """The service with a candidate; a training is started in name only."""
    assert explorer.workplace is not None
    assert explorer.retraining is not None
    shutil.copytree(explorer.workplace.model, explorer.workplace.candidate)
    monkeypatch.setattr(explorer.retraining, "start", lambda labels: True)
    return Guard(create_app(explorer), {"testserver"})


def bounded(examples: int) -> Any:
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def ask_everything(guarded: Guard, examples: int) -> set[str]:
    """Send requests of every kind to every operation; return the operations."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", guarded)
    asked = set()
    for found in schema.get_all_operations():
        operation = found.ok()
        asked.add(operation.label)
        modes = [GenerationMode.POSITIVE]
        if operation.query or operation.body:
            modes.append(GenerationMode.NEGATIVE)
        for mode in modes:

            @bounded(examples)
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                answer = case.call()
                assert answer.status_code < 500, (case.as_curl_command(), answer.text)

            ask()
    return asked


OPERATIONS = {
    *("GET /health", "GET /model", "GET /nodes", "GET /nodes/{id}", "POST /predict"),
    *("GET /labels", "POST /labels", "GET /work/suspicious", "GET /work/next", "GET /graph"),
    *("GET /retrain", "POST /retrain", "POST /retrain/keep", "POST /retrain/discard"),
    *(f"GET /export/{name}" for name in ("predictions.csv", "graph.gexf", "snapshot.html")),
}


def test_no_request_to_any_operation_is_an_error_inside(guarded: Guard) -> None:
    assert ask_everything(guarded, 3) == OPERATIONS


def test_every_status_of_a_refusal_is_described(guarded: Guard) -> None:
    described = TestClient(guarded).get("/openapi.json").json()["paths"]["/labels"]["post"]
    every = {"400", "401", "403", "404", "405", "408", "409", "413", "415", "421", "422", "503"}
    assert every <= {*described["responses"]}


@pytest.mark.slow
def test_no_request_of_very_many_is_an_error_inside(guarded: Guard) -> None:
    ask_everything(guarded, 40)


# Halves of surrogate pairs too, which JSON can write and UTF-8 cannot.
TEXTS = st.text(st.characters(exclude_categories=()), max_size=8)
IDS = st.sampled_from([*ODD, "n6", "n7", "new"]) | st.integers() | TEXTS
CELLS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
NEW_NODES = st.fixed_dictionaries(
    {
        "nodes": st.lists(
            st.fixed_dictionaries({"id": IDS, "age": CELLS | st.lists(CELLS, max_size=3)}),
            min_size=1,
            max_size=3,
        )
    },
    optional={
        "edges": st.lists(
            st.fixed_dictionaries(
                {"source": IDS, "target": IDS}, optional={"weight": st.none() | st.floats()}
            ),
            max_size=3,
        ),
        "vectors": st.none() | st.lists(st.lists(st.floats(), max_size=2), max_size=2),
    },
)
GIVEN = st.fixed_dictionaries({"id": IDS, "label": st.none() | st.sampled_from(CLASSES) | TEXTS})


def tell_known_nodes(guarded: Guard, examples: int) -> None:
    """Send bodies that name known nodes, columns and classes, with any values beside them."""
    client = TestClient(guarded, raise_server_exceptions=False)

    # Python's JSON, because that of the client refuses infinite numbers and lone surrogates.
    def send(path: str, body: Any) -> None:
        headers = {"content-type": "application/json"}
        answer = client.post(path, content=json.dumps(body).encode(), headers=headers)
        assert answer.status_code < 500, (path, body, answer.text)

    @bounded(examples)
    @given(NEW_NODES)
    def predict(body: Any) -> None:
        send("/predict", body)

    @bounded(examples)
    @given(st.lists(GIVEN, max_size=3))
    def label(labels: Any) -> None:
        send("/labels", {"labels": labels})

    predict()
    label()


def test_no_value_of_a_known_node_is_an_error_inside(guarded: Guard) -> None:
    tell_known_nodes(guarded, 60)


@pytest.mark.slow
def test_no_value_of_very_many_is_an_error_inside(guarded: Guard) -> None:
    tell_known_nodes(guarded, 500)
