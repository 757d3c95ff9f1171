"""A local web server that misbehaves on demand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FaultyServer(ThreadingHTTPServer):
    """Serves ``files`` by path, with the fault named in ``faults`` if any.

    Faults: ``cut`` sends half of what it promised; ``stall`` sends half and then nothing;
    ``no-range`` ignores Range; ``slow`` sends in small pieces.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, str] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.sent = 0
        self.closing = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that hang up: that is what the tests make them do."""


class _Handler(BaseHTTPRequestHandler):
    server: FaultyServer

    def do_GET(self) -> None:
        span = self.headers.get("Range")
        self.server.requests.append((self.path, span))
        content = self.server.files.get(self.path)
        fault = self.server.faults.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = 0
        if span and fault != "no-range":
            start = int(span.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        body = content[start:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault in ("cut", "stall"):
            body = body[: len(body) // 2]
        step = len(body) // 20 + 1 if fault == "slow" else len(body) + 1
        for at in range(0, len(body), step):
            self.wfile.write(body[at : at + step])
            self.server.sent += len(body[at : at + step])
            if fault == "slow":
                self.server.closing.wait(0.05)
        self.wfile.flush()
        if fault == "stall":
            self.server.closing.wait(30)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[FaultyServer]:
    server = FaultyServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
