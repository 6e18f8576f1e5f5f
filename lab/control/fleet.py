"""Gives every instance of the control plane a body, and takes it away again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from lab.bodies.body import BodySpec
from lab.control.daemon_spec import DaemonSpec
from lab.control.ec2 import ControlPlane, Machine
from lab.leftovers import remove_tree
from lab.places import BODY_LOG, BODY_SPEC, NAMESPACES, SSH_SOCKET, Places

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

    def __init__(self, places: Places, control_plane: ControlPlane, spec: DaemonSpec) -> None:
        self._places, self._control_plane, self._spec = places, control_plane, spec
        self._bodies: dict[str, Body] = {}

    def tend(self) -> None:
        """Boot what was launched, remove what was terminated, terminate what has died."""
        wanted = {machine.instance_id: machine for machine in self._control_plane.machines()}
        for instance_id in [*self._bodies]:
            body = self._bodies[instance_id]
            if instance_id not in wanted:
                self._remove(body)
            elif body.process.poll() is not None:
                # left alone, SkyPilot would knock at its ssh for ten minutes
                tail = (body.folder / BODY_LOG).read_text(encoding="utf-8", errors="replace")[-1000:]
                tell(f"{instance_id} died with {body.process.returncode}, its instance is terminated: {tail}")
                self._control_plane.terminate(body.machine)
        if self._places.hold.exists():
            return
        for machine in wanted.values():
            if machine.instance_id not in self._bodies:
                try:
                    self._boot(machine)
                except OSError:
                    traceback.print_exc()
                    self._control_plane.terminate(machine)

    def close(self) -> None:
        """Kill every body and remove its files."""
        for body in [*self._bodies.values()]:
            self._remove(body)

    def _boot(self, machine: Machine) -> None:
        folder = self._places.fleet / machine.instance_id
        folder.mkdir()
        (folder / "authorized_keys").write_text("\n".join([*machine.authorized_keys, ""]), encoding="utf-8")
        spec = BodySpec(
            machine.instance_id,
            machine.instance_type,
            machine.zone,
            machine.private_ip,
            self._control_plane.port,
            self._spec.baked,
            str(self._places.egress),
            str(self._places.shared),
            self._spec.cache,
            self._spec.python,
            self._spec.read_only,
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
