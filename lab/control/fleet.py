"""Gives every instance of the control plane a body, and takes it away again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from lab.bodies.announced import Announced
from lab.bodies.body import BodySpec
from lab.control.daemon_spec import DaemonSpec
from lab.control.ec2 import ControlPlane, Machine
from lab.leftovers import remove_tree
from lab.places import BODY_LOG, BODY_SPEC, FIRST_BOOT, NAMESPACES, POWERED_OFF, SSH_SOCKET, Places
from lab.weather.conditions import MACHINES, Conditions

LOOK_EVERY_S = 1.0
"""Pause between two looks at the bodies while nothing is launched or terminated."""


class Body(NamedTuple):
    """A running body; `link` leads from its public address to its ssh socket."""

    machine: Machine
    process: subprocess.Popen[bytes]
    folder: Path
    link: Path


class Fleet:
    """The bodies of one lab. All methods run in one thread, which outlives the bodies."""

    def __init__(
        self, places: Places, control_plane: ControlPlane, spec: DaemonSpec, endpoint_port: int, weather: Conditions
    ) -> None:
        self._places, self._control_plane, self._spec = places, control_plane, spec
        self._endpoint_port, self._weather = endpoint_port, weather
        self._bodies: dict[str, Body] = {}
        self._seen_s: dict[str, float] = {}

    def tend(self) -> None:
        """Boot what was launched, remove what was terminated, terminate what has died."""
        wanted = {machine.instance_id: machine for machine in self._control_plane.machines()}
        for instance_id in [*self._bodies]:
            body = self._bodies[instance_id]
            if instance_id not in wanted:
                self._remove(body)
            elif body.process.poll() == POWERED_OFF:
                tell(f"{instance_id} has powered itself off")
                self._control_plane.powered_off(body.machine)
            elif body.process.poll() is not None:
                # left alone, SkyPilot would knock at its ssh for ten minutes
                tail = (body.folder / BODY_LOG).read_text(encoding="utf-8", errors="replace")[-1000:]
                tell(f"{instance_id} died with {body.process.returncode}, its instance is terminated: {tail}")
                self._control_plane.terminate(body.machine)
            elif Announced.read(body.folder).is_due(time.time()):
                self._control_plane.reclaim(body.machine)
        if self._places.hold.exists():
            return
        for machine in wanted.values():
            if machine.instance_id not in self._bodies and self._has_its_image(machine):
                try:
                    self._boot(machine)
                except OSError:
                    traceback.print_exc()
                    self._control_plane.terminate(machine)

    def close(self) -> None:
        """Kill every body and remove its files."""
        for body in [*self._bodies.values()]:
            self._remove(body)

    def _has_its_image(self, machine: Machine) -> bool:
        seen_s = self._seen_s.setdefault(machine.instance_id, time.monotonic())
        return time.monotonic() - seen_s >= (self._weather.amount(MACHINES, "image") or 0.0)

    def _boot(self, machine: Machine) -> None:
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
        body.process.kill()  # SIGTERM does not reach through `unshare --fork`
        body.process.wait()
        body.link.unlink(missing_ok=True)
        remove_tree(body.folder)
        del self._bodies[body.machine.instance_id]
        tell(f"{body.machine.instance_id} is gone")


def tell(text: str) -> None:
    """Print a line to the daemon's log, with the time before it."""
    print(time.strftime("%H:%M:%S"), text, flush=True)
