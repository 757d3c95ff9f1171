"""Who may ask, how much, and for how long: what another page or machine could try."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.responses import StreamingResponse
from starlette.testclient import TestClient

from dropnode.serve.app import create_app
from dropnode.serve.explorer import Explorer
from dropnode.serve.guard import LARGEST, Guard
from dropnode.serve.workload import PLACES

LABEL = {"labels": [{"id": "n7", "label": "mate"}]}


def problem(answer: Any) -> tuple[int, str]:
    (found,) = answer.json()["problems"]
    return answer.status_code, found["field"]


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "[::1", "", "a b"])
def test_other_names_of_this_machine_are_refused(client: TestClient, host: str) -> None:
    assert problem(client.get("/model", headers={"host": host})) == (421, "host")


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1:8321", "[::1]:80", "LOCALHOST"])
def test_its_own_names_are_accepted(client: TestClient, host: str) -> None:
    assert client.get("/model", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_writes_that_a_form_of_another_page_could_send_are_refused(
    client: TestClient, kind: str
) -> None:
    headers = {"content-type": kind}
    answer = client.post("/labels", content=b'{"labels": []}', headers=headers)
    assert problem(answer) == (415, "content-type")
    assert client.get("/labels").json()["entries"] == 0


def test_a_write_of_another_origin_is_refused(client: TestClient) -> None:
    answer = client.post("/labels", json=LABEL, headers={"origin": "http://evil.example"})
    assert problem(answer) == (403, "origin")
    answer = client.post("/labels", json=LABEL, headers={"origin": "http://testserver"})
    assert answer.status_code == 201


def test_no_answer_permits_other_origins_and_all_have_the_policy(client: TestClient) -> None:
    asked = {"origin": "http://evil.example", "access-control-request-method": "POST"}
    for answer in (
        client.get("/model", headers={"origin": "http://evil.example"}),
        client.options("/labels", headers=asked),
        client.get("/"),
        client.get("/nothing"),
    ):
        assert not any(name.startswith("access-control") for name in answer.headers)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_a_body_that_is_too_large_is_refused_with_and_without_its_length(
    client: TestClient,
) -> None:
    large = b"[" + b" " * LARGEST + b"]"
    headers = {"content-type": "application/json"}
    assert problem(client.post("/predict", content=large, headers=headers)) == (413, "body")
    parts = iter([large[: LARGEST // 2], large[LARGEST // 2 :]])
    assert problem(client.post("/predict", content=parts, headers=headers)) == (413, "body")


def test_a_token_guards_everything_of_the_model(explorer: Explorer) -> None:
    client = TestClient(Guard(create_app(explorer), {"testserver"}, "correct-horse-battery"))
    for path in ("/model", "/nodes", "/openapi.json", "/export/predictions.csv", "/graph"):
        assert problem(client.get(path)) == (401, "authorization")
    assert problem(client.post("/labels", json=LABEL)) == (401, "authorization")
    assert client.get("/health").status_code == client.get("/").status_code == 200
    for shown in ("Bearer wrong", "correct-horse-battery", "Bearer ü"):
        headers = {"authorization": shown.encode()}
        assert client.get("/model", headers=headers).status_code == 401
    headers = {"authorization": "Bearer correct-horse-battery"}
    assert client.get("/model", headers=headers).status_code == 200


@pytest.mark.parametrize("origin", ["https://explorer.example.org", "https://evil.example"])
def test_behind_a_proxy_the_public_name_is_host_and_origin(explorer: Explorer, origin: str) -> None:
    guard = Guard(create_app(explorer), {"explorer.example.org"})
    client = TestClient(guard, base_url="http://explorer.example.org")
    expected = 201 if "explorer" in origin else 403
    assert client.post("/labels", json=LABEL, headers={"origin": origin}).status_code == expected
    # A proxy that names the machine behind it takes away what tells whose page it is.
    inside = {"origin": origin, "host": "127.0.0.1:8321"}
    assert client.get("/model", headers=inside).status_code == 200
    assert problem(client.post("/labels", json=LABEL, headers=inside)) == (403, "origin")


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    async def slow(*_: Any) -> None:
        await asyncio.sleep(30)

    client = TestClient(Guard(slow, {"testserver"}, answer_seconds=0.05))
    assert problem(client.get("/model")) == (503, "request")


def test_an_answer_that_has_begun_may_take_long(client: TestClient) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"part"
            await asyncio.sleep(0.1)

    client = TestClient(Guard(StreamingResponse(parts()), {"testserver"}, answer_seconds=0.2))
    assert client.get("/export/graph.gexf").text == "part" * 4


def test_work_of_requests_that_were_given_up_keeps_its_place(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dropnode.serve.workload.PATIENCE", 0.01)
    go_on, working = threading.Event(), []

    def explained(served: Any, at: int) -> dict[str, Any]:
        working.append(at)
        go_on.wait(60)
        return {}

    explorer.explained = explained  # type: ignore[assignment]
    client = TestClient(Guard(create_app(explorer), {"testserver"}, answer_seconds=0.2))
    answers = [client.get(f"/nodes/n{at}") for at in range(10, 10 + 2 * PLACES)]
    assert {problem(each) for each in answers} == {(503, "request")}
    assert len(working) == PLACES
    assert "ask for less" in answers[0].text
    assert "ask again later" in answers[-1].text
    assert problem(client.get("/export/snapshot.html")) == (503, "request")
    new = {"nodes": [{"id": "new", "age": 21.5}]}
    assert problem(client.post("/predict", json=new)) == (503, "request")
    # What takes no time is answered meanwhile.
    assert client.get("/nodes/n6?explain=false").status_code == 200
    go_on.set()
    end = time.monotonic() + 30
    while client.get("/nodes/n6").status_code != 200:
        assert time.monotonic() < end


def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dropnode.serve.guard.BODY_SECONDS", 0.05)
    said: list[dict[str, Any]] = []

    async def never() -> dict[str, Any]:
        await asyncio.sleep(30)
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}
    asyncio.run(Guard(never, set())(scope, never, send))  # type: ignore[arg-type]
    assert said[0]["status"] == 408
