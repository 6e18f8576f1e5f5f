"""`connect.py FOLDER ADDRESS`, ssh's ProxyCommand: joins its pipes to socket FOLDER/ADDRESS (standard library only)."""

import os
import socket
import sys
import threading


def _send(link: socket.socket) -> None:
    while chunk := os.read(0, 1 << 16):
        link.sendall(chunk)
    link.shutdown(socket.SHUT_WR)


def main() -> int:
    """Copy both ways until the socket ends."""
    path = os.path.realpath(os.path.join(sys.argv[1], sys.argv[2]))  # noqa: PTH118 -- pathlib costs every ssh 10 ms
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(path)
    except OSError as error:
        print(f"no instance answers at {sys.argv[2]}: {error.strerror}", file=sys.stderr)
        return 1
    threading.Thread(target=_send, args=(link,), daemon=True).start()
    while chunk := link.recv(1 << 16):
        view = memoryview(chunk)
        while view:
            view = view[os.write(1, view) :]
    return 0


if __name__ == "__main__":
    sys.exit(main())
