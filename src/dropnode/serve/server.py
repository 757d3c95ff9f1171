"""The server: addresses, the token, and an end that lets requests finish."""

from __future__ import annotations

import ipaddress
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dropnode.errors import ConfigError
from dropnode.serve.app import create_app
from dropnode.serve.explorer import Explorer
from dropnode.serve.guard import Guard

SHORTEST = 16
"""Letters of a token."""

CONNECTIONS = 256
"""Connections at a time; more are answered with 503."""

GRACE = 20
"""Seconds that requests have to finish after the service was told to end."""


def read_token(path: Path | None) -> str | None:
    """Return the token in a file; None without a file."""
    if path is None:
        return None
    try:
        token = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text; expected one line with a token") from error
    # Any other character could not stand in a header or in the address of the page.
    if len(token) < SHORTEST or not re.fullmatch(r"[A-Za-z0-9._~+/=-]*", token):
        raise ConfigError(
            f"{path} has no usable token; expected one line of {SHORTEST} or more letters, digits "
            "and . _ ~ + / = -, such as openssl rand -hex 32 prints"
        )
    return token


def listen(host: str, port: int, token: str | None) -> socket.socket:
    """Return a socket that listens; other addresses than loopback need a token.

    Raises
    ------
    ConfigError
        If the address is open to others and there is no token, or the port is taken.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host}: no such address ({error})") from error
    family, _, _, _, address = found[0]
    here = ipaddress.ip_address(str(address[0]).partition("%")[0])
    if not here.is_loopback and token is None:
        raise ConfigError(
            f"--host {host} can be reached from other machines; give --token-file FILE, or leave "
            "--host out"
        )
    try:
        listener = socket.create_server(address[:2], family=family, backlog=128)
        # Connections inherit it. Without, the second part of an answer, its body, would wait until
        # the client confirms the first one, which takes clients 40 milliseconds.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise ConfigError(
            f"port {port} of {host} cannot be used ({error.strerror}); choose another --port, or "
            "--port 0 for any free one"
        ) from error


def serve(
    explorer: Explorer,
    listener: socket.socket,
    host: str,
    token: str | None,
    ready: Callable[[], None],
) -> None:
    """Answer requests until the process is told to end; those under way are finished.

    Parameters
    ----------
    explorer : Explorer
        Closed at the end.
    listener : socket
        Of :func:`listen`.
    host : str
        The name that was given for the address.
    token : str or None
    ready : callable
        Called before the first request is taken.
    """
    import uvicorn

    guarded = Guard(create_app(explorer), {host, socket.gethostname()}, token)
    config = uvicorn.Config(
        guarded,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=64 * 1024,
    )
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    # The server sends itself the signal again when it has ended. To end is what was asked for.
    for number in before:
        signal.signal(number, lambda *_: None)
    try:
        # The first person to look does not wait for the picture.
        threading.Thread(target=_prepare, args=[explorer], daemon=True).start()
        ready()
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        explorer.close()
        with suppress(OSError):
            listener.close()


def _prepare(explorer: Explorer) -> None:
    from dropnode.serve.drawing import MOST_NODES

    if sys.platform == "linux":
        with suppress(OSError):
            # Of this thread alone; elsewhere, its number would name some process.
            behind = os.getpriority(os.PRIO_PROCESS, 0) + 10
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), behind)
    if len(explorer.served.ids) <= MOST_NODES:
        explorer.places()
