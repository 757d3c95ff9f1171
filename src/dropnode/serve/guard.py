"""The guard in front of the service: who may ask, how much, and for how long.

Every page that a browser shows can send requests to this machine. The guard therefore takes only
requests whose Host is an address or a name of this service, so that no other name can be pointed at
it; and only writes of JSON from the same origin, which another page cannot send without permission
that this service never gives.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

LARGEST = 4 * 2**20
"""Bytes of a request's body."""

BODY_SECONDS, ANSWER_SECONDS = 15.0, 60.0
"""How long a body may take to arrive, and an answer to begin."""

OPEN = ("/health", "/", "/page/")
"""What is answered without a token: nothing of the model."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of every answer."""


class RefusalError(Exception):
    """A request that is not answered; the status and the reason."""

    def __init__(self, status: int, reason: str, field: str) -> None:
        super().__init__(reason)
        self.status, self.reason, self.field = status, reason, field


class Guard:
    """An ASGI application around another one, which it protects.

    Parameters
    ----------
    inner : Application
    names : set of str
        Names of this service that a Host header may have, besides addresses and ``localhost``.
    token : str or None
        What requests must show in ``Authorization: Bearer``; None for no token.
    answer_seconds : float
        How long an answer may take to begin. What has begun may take as long as its way is slow.
    """

    def __init__(
        self,
        inner: Application,
        names: set[str],
        token: str | None = None,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.inner, self.token, self.answer_seconds = inner, token, answer_seconds
        self.names = {name.lower() for name in names} | {"localhost"}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.inner(scope, receive, send)
            return
        begun = False

        async def protected(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                named = {name for name, _ in message["headers"]}
                more = [
                    (name.encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.encode() not in named
                ]
                if b"cache-control" not in named:
                    more.append((b"cache-control", b"no-store"))
                message = message | {"headers": [*message["headers"], *more]}
            await send(message)

        async def unhurried(message: Message) -> None:
            if not limit.expired():
                limit.reschedule(None)
            await protected(message)

        try:
            self._check(scope)
            body = await _body(scope, receive)
            async with asyncio.timeout(self.answer_seconds) as limit:
                await self.inner(scope, _replay(body, receive), unhurried)
        except RefusalError as refusal:
            await _refuse(refusal, protected)
        except TimeoutError:
            if begun:
                raise
            told = f"no answer within {self.answer_seconds:g} seconds; ask for less"
            await _refuse(RefusalError(503, told, "request"), protected)

    def _check(self, scope: Message) -> None:
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        host = headers.get("host", "")
        if not self._is_ours(host):
            raise RefusalError(
                421,
                "this is not a name of this service; use its address or localhost, or serve with "
                "this name as --host",
                "host",
            )
        if scope["method"] not in ("GET", "HEAD"):
            self._check_write(headers, host)
        path = scope["path"]
        if self.token is not None and path not in OPEN and not path.startswith(OPEN[2]):
            shown = headers.get("authorization", "")
            wanted = f"Bearer {self.token}"
            if not hmac.compare_digest(shown.encode(), wanted.encode()):
                raise RefusalError(
                    401, "a token is needed: Authorization: Bearer TOKEN", "authorization"
                )

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            # An address is not looked up, so nobody can point it here.
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _check_write(self, headers: Mapping[str, str], host: str) -> None:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RefusalError(415, "expected the content type application/json", "content-type")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            raise RefusalError(
                403,
                "requests of other pages are refused; a proxy in front has to keep the Host header",
                "origin",
            )


async def _body(scope: Message, receive: Receive) -> bytes:
    """Return the body of a request; one that is too large or too slow is refused."""
    length = dict(scope["headers"]).get(b"content-length", b"0")
    too_large = RefusalError(
        413, f"the body has more than {LARGEST:,} bytes; send less at a time", "body"
    )
    if not length.isdigit() or int(length) > LARGEST:
        raise too_large
    parts: list[bytes] = []
    size, more = 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise RefusalError(400, "the request ended early", "body")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                more = message.get("more_body", False)
                if size > LARGEST:
                    raise too_large
    except TimeoutError:
        told = f"the body did not arrive within {BODY_SECONDS:g} seconds"
        raise RefusalError(408, told, "body") from None
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a function that gives a body that has arrived, and then what else comes."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def _refuse(refusal: RefusalError, send: Send) -> None:
    text = json.dumps({"problems": [{"field": refusal.field, "message": refusal.reason}]})
    headers = [(b"content-type", b"application/json")]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status in (408, 413):
        # What is still on its way is not read.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})
