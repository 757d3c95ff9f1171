"""Where the service listens from: its token, and its thread that works behind the others."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from dropnode.errors import ConfigError
from dropnode.serve import server
from dropnode.serve.explorer import Explorer


@pytest.mark.parametrize(
    "token", ["short", "100%-of-the-letters", "with a space in it", "пароль" * 4]
)
def test_a_token_that_no_header_or_address_can_have_is_refused(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"16 or more letters, digits and \. _ ~ \+ / = -"):
        server.read_token(tmp_path / "token")


def test_a_token_of_all_that_is_permitted_is_read(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("aZ09._~+/=-aZ09._~+/=-\n")
    assert server.read_token(tmp_path / "token") == "aZ09._~+/=-aZ09._~+/=-"


@pytest.mark.parametrize(("system", "calls"), [("linux", 1), ("darwin", 0)])
def test_the_priority_of_a_thread_is_set_where_threads_have_one(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch, system: str, calls: int
) -> None:
    set_for: list[int] = []
    explorer.places()
    monkeypatch.setattr(os, "setpriority", lambda kind, number, value: set_for.append(number))
    monkeypatch.setattr(sys, "platform", system)
    server._prepare(explorer)
    assert len(set_for) == calls


def test_the_body_of_an_answer_does_not_wait_for_the_clients_confirmation() -> None:
    with server.listen("127.0.0.1", 0, None) as listener:
        with socket.create_connection(listener.getsockname()):
            connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
