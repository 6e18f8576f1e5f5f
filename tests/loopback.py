"""On loopback: a web server in this process, and a TCP line between client and server that a test cuts and mends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Answering(BaseHTTPRequestHandler):
    """What is asked is not logged; an answer is sent whole, and its connection stays."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        return

    def received(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def reply(self, status: int, data: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[str]:
    """Its `host:port`; without a port it has any free one."""
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class CutLine:
    """Forwards connections to a port of this machine; while it is cut, old ones break and new ones are refused.

    All that is sent takes `late_s` longer, in each direction.
    """

    def __init__(self, port: int, late_s: float = 0.0) -> None:
        self._port, self._late_s, self._is_cut = port, late_s, False
        self._open: list[socket.socket] = []
        self._guard = threading.Lock()
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> CutLine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._door.close()
        self.cut()

    def cut(self) -> None:
        with self._guard:
            self._is_cut = True
            for end in self._open:
                _break(end)
            self._open.clear()

    def mend(self) -> None:
        self._is_cut = False

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            with self._guard:
                if self._is_cut:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._port))
                self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):  # the line was cut, or an end hung up
            while data := one.recv(65536):
                time.sleep(self._late_s)
                other.sendall(data)
        _break(one)
        _break(other)


def _break(end: socket.socket) -> None:
    with end, suppress(OSError):  # the other end was faster
        end.shutdown(socket.SHUT_RDWR)
