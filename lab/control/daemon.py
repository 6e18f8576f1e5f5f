"""The cloud's process: control plane, bodies, and the socket through which bodies reach the endpoint.

`python -m lab.control.daemon SPEC`, as the user that bodies run as; SIGTERM ends it with all bodies.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from lab.bodies.body import BodySpec
from lab.bodies.metadata import Announced
from lab.bodies.relay import relay
from lab.control.ec2 import ControlPlane, LiveInstance, hold_looks, hold_writes
from lab.control.ports import api_port, queue_port, reserved
from lab.leftovers import kill_body, remove_tree
from lab.paths import (
    BODY_LOG,
    BODY_SPEC,
    EGRESS_SOCKET,
    FIRST_BOOT,
    NAMESPACES,
    POWERED_OFF,
    SPEED_LOCK,
    SSH_SOCKET,
    DaemonSpec,
    LabPaths,
    write_whole,
)
from lab.weather.conditions import MACHINES, Conditions
from lab.weather.door import Door


async def _serve(path: Path, door: Door) -> None:
    await asyncio.start_unix_server(relay(lambda: asyncio.open_connection("127.0.0.1", door.port)), path)
    await door.serve()


def main() -> None:
    """Run until SIGTERM."""
    spec = DaemonSpec(**json.loads(sys.argv[1]))
    places = LabPaths(Path(spec.root))
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # otherwise it logs a line for each request
    stopping = threading.Event()
    control_plane = ControlPlane(places.capacity)
    hold_writes(places.held_writes)
    hold_looks(places.held_looks)

    def stop(*_: object) -> None:
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
    ports = {"port": door.port, "behind_port": control_plane.port, "api_port": for_sky}  # behind: without weather
    write_whole(places.ready, json.dumps(ports))
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


LOOK_EVERY_S = 1.0  # pause between two looks at the bodies while nothing is launched or terminated


class Body(NamedTuple):
    """A running body; `link` leads from its public address to its ssh socket."""

    machine: LiveInstance
    process: subprocess.Popen[bytes]
    folder: Path
    link: Path


class Fleet:
    """The bodies of one lab. All methods run in one thread, which outlives the bodies."""

    def __init__(
        self, places: LabPaths, control_plane: ControlPlane, spec: DaemonSpec, endpoint_port: int, weather: Conditions
    ) -> None:
        self._places, self._control_plane, self._spec = places, control_plane, spec
        self._endpoint_port, self._weather = endpoint_port, weather
        self._bodies: dict[str, Body] = {}
        self._seen_s: dict[str, float] = {}

    def tend(self) -> None:
        """Boot what was launched, remove what was terminated, terminate what died; a fault with one ends no other."""
        wanted = {machine.instance_id: machine for machine in self._control_plane.machines()}
        for instance_id, body in [*self._bodies.items()]:
            try:
                self._look_after(body, instance_id in wanted)
            except Exception:
                traceback.print_exc()
        if self._places.hold.exists():
            return
        for machine in wanted.values():
            if machine.instance_id not in self._bodies and self._has_its_image(machine):
                try:
                    self._boot(machine)
                except OSError:
                    traceback.print_exc()
                    self._control_plane.terminate(machine)

    def _look_after(self, body: Body, is_wanted: bool) -> None:
        name = body.machine.instance_id
        if not is_wanted:
            self._remove(body)
        elif body.process.poll() == POWERED_OFF:
            tell(f"{name} has powered itself off")
            self._control_plane.powered_off(body.machine)
        elif body.process.poll() is not None:
            # left alone, SkyPilot would knock at its ssh for ten minutes
            tail = (body.folder / BODY_LOG).read_text(encoding="utf-8", errors="replace")[-1000:]
            tell(f"{name} died with {body.process.returncode}, its instance is terminated: {tail}")
            self._control_plane.terminate(body.machine)
        elif Announced.read(body.folder).is_due(time.time()):
            self._control_plane.reclaim(body.machine)

    def close(self) -> None:
        """Kill every body and remove its files."""
        for body in [*self._bodies.values()]:
            self._remove(body)

    def _has_its_image(self, machine: LiveInstance) -> bool:
        seen_s = self._seen_s.setdefault(machine.instance_id, time.monotonic())
        return time.monotonic() - seen_s >= (self._weather.amount(MACHINES, "image") or 0.0)

    def _boot(self, machine: LiveInstance) -> None:
        folder = self._places.fleet / machine.instance_id
        folder.mkdir()
        (folder / "authorized_keys").write_text("\n".join([*machine.authorized_keys, ""]), encoding="utf-8")
        (folder / FIRST_BOOT).write_text(machine.first_boot, encoding="utf-8")
        spec = BodySpec(
            machine.instance_id,
            machine.instance_type,
            machine.zone,
            machine.private_ip,
            self._endpoint_port,
            self._spec.baked,
            str(self._places.egress),
            str(self._places.shared),
            self._spec.cache,
            self._spec.python,
            self._spec.read_only,
            self._weather.amount(MACHINES, "setup") or 0.0,
        )
        (folder / BODY_SPEC).write_text(json.dumps(spec._asdict()), encoding="utf-8")
        # a daemon that is killed takes its bodies along: `unshare` dies with it, and the namespaces with `unshare`
        command = ["setpriv", "--pdeathsig=KILL", *NAMESPACES, sys.executable, "-m", "lab.bodies.body", str(folder)]
        with (folder / BODY_LOG).open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
            )
        link = self._places.by_ip / machine.public_ip
        link.unlink(missing_ok=True)
        link.symlink_to(folder / SSH_SOCKET)
        self._bodies[machine.instance_id] = Body(machine, process, folder, link)
        tell(f"{machine.instance_id} boots: {machine.instance_type} in {machine.zone}, {machine.public_ip}")

    def _remove(self, body: Body) -> None:
        kill_body(body.process)
        body.link.unlink(missing_ok=True)
        remove_tree(body.folder)
        del self._bodies[body.machine.instance_id]
        tell(f"{body.machine.instance_id} is gone")


def tell(text: str) -> None:
    """Print a line to the daemon's log, with the time before it."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


if __name__ == "__main__":
    main()
