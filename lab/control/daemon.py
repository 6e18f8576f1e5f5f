"""The cloud's process: control plane, bodies, and the socket through which bodies reach the endpoint.

`python -m lab.control.daemon SPEC`, in the environment `lab`, as the user that bodies run as; SIGTERM ends it with all
bodies.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from lab.bodies.relay import relay
from lab.control.daemon_spec import DaemonSpec
from lab.control.ec2 import ControlPlane
from lab.control.fleet import LOOK_EVERY_S, Fleet, tell
from lab.control.held_writes import hold_writes
from lab.control.ports import api_port, queue_port, reserved
from lab.places import EGRESS_SOCKET, SPEED_LOCK, Places
from lab.weather.conditions import Conditions
from lab.weather.door import Door


async def _serve(path: Path, door: Door) -> None:
    """The cloud's door, for processes of the host by its port and for bodies by a socket."""
    await asyncio.start_unix_server(relay(lambda: asyncio.open_connection("127.0.0.1", door.port)), path)
    await door.serve()


def main() -> None:
    """Run until SIGTERM."""
    spec = DaemonSpec.load(sys.argv[1])
    places = Places(Path(spec.root))
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # otherwise it logs a line for each request
    stopping = threading.Event()
    control_plane = ControlPlane(places.capacity)
    hold_writes(places.held_writes)

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        stopping.set()
        control_plane.changed.set()

    signal.signal(signal.SIGTERM, stop)
    for folder in (places.by_ip, places.egress):
        folder.mkdir()
    (places.shared / SPEED_LOCK).touch()
    conditions = Conditions(places.weather)
    door = Door(conditions, control_plane.port)
    serving = _serve(places.egress / EGRESS_SOCKET, door)
    threading.Thread(target=asyncio.run, args=(serving,), daemon=True).start()
    for_sky = api_port()
    ports = {"port": door.port, "behind_port": control_plane.port, "api_port": for_sky}
    temporary = places.ready.with_suffix(".new")
    temporary.write_text(json.dumps(ports), encoding="utf-8")
    temporary.rename(places.ready)
    tell(f"ready on port {door.port}")
    fleet = Fleet(places, control_plane, spec, door.port, conditions)
    queue = reserved(queue_port(for_sky))
    try:
        while not stopping.is_set():
            control_plane.changed.wait(LOOK_EVERY_S)
            control_plane.changed.clear()
            fleet.tend()
    finally:
        fleet.close()
        queue.close()


if __name__ == "__main__":
    main()
