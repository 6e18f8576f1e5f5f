"""A TCP line between a client and a server on loopback that a test cuts and mends."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress


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
