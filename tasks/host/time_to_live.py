"""A rented machine's own end: it powers itself off unless somebody says in time that its flow lives.

`python3 time_to_live.py SECONDS` starts at the machine's first boot, before SkyPilot can reach it, from a copy in its
first-boot script: standard library only, Python 3.8 or newer. The node runner says with `renew` for how long it may go
on. Its address is in the network's namespace, so a container with the host's network reaches it, too.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time

ADDRESS = "\0specsweep-time-to-live"  # Linux's abstract name of the timer's socket; a second timer finds it taken, ends
AGAIN_S = 30.0  # pause before a machine that is still there is powered off again


class TimeToLive:
    """When a machine ends, by a clock that never jumps."""

    def __init__(self, longest_s: float, now_s: float) -> None:
        """`longest_s`: from now, and from each renewal, at most."""
        self._longest_s, self._end_s = longest_s, now_s + longest_s

    def left_s(self, now_s: float) -> float:
        """Seconds that are left; 0 or less: it is over."""
        return self._end_s - now_s

    def told(self, words: bytes, now_s: float) -> None:
        """Take a renewal, seconds as text. It never shortens; what is no number was written by somebody else."""
        try:
            more_s = float(words)
        except ValueError:
            return
        if more_s > 0:  # which "nan" is not
            self._end_s = max(self._end_s, now_s + min(self._longest_s, more_s))


def renew(left_s: float, address: str = ADDRESS) -> bool:
    """Let the machine live for so many seconds from now, or for longer if that was said; False: it has no timer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
        try:
            way.sendto(str(left_s).encode("ascii"), address)
        except ConnectionRefusedError:
            return False
    return True


def wait(longest_s: float, address: str = ADDRESS) -> None:
    """Return when the time is over."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind(address)
        life = TimeToLive(longest_s, time.monotonic())
        while True:
            left_s = life.left_s(time.monotonic())
            if left_s <= 0:
                return
            door.settimeout(left_s)
            try:
                words = door.recv(64)
            except socket.timeout:  # noqa: UP041 -- TimeoutError is another one before Python 3.10
                return
            life.told(words, time.monotonic())


def main() -> None:
    """Wait, then power off."""
    wait(float(sys.argv[1]), *sys.argv[2:3])
    while True:
        print("nobody has looked after this machine in time: it is powered off", flush=True)
        subprocess.run(["shutdown", "-P", "now"], check=False)
        time.sleep(AGAIN_S)


if __name__ == "__main__":
    main()
