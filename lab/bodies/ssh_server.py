"""The network side of a body: ssh on a unix socket, the metadata service, and the way to the cloud's endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import asyncssh

from lab.bodies.body import METADATA_ADDRESS, BodySpec
from lab.bodies.metadata import Metadata
from lab.bodies.relay import relay
from lab.paths import EGRESS_SOCKET, INSIDE

LOGIN_S = 60  # how long a client may take to authenticate; bodies boot side by side on few cores


async def _run(process: Any, environment: dict[str, str]) -> None:
    """Run the command of one ssh session with bash; a client that leaves takes its command along."""
    command = ["-c", process.command] if process.command else ["-l"]
    env = environment | dict(process.env or {})
    if process.term_type:
        env["TERM"] = process.term_type
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        "/bin/bash", *command, stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=INSIDE.home, start_new_session=True
    )
    await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
    ended = asyncio.ensure_future(child.wait())
    left = asyncio.ensure_future(process.channel.wait_closed())
    await asyncio.wait({ended, left}, return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGHUP)
        await ended
        return
    with contextlib.suppress(ConnectionError, asyncssh.Error):
        await process.stdout.drain()
    code = ended.result()
    process.exit(code if code >= 0 else 128 - code)
    await process.wait_closed()  # runs asyncssh's own clean-up, which complains otherwise


class _Server(asyncssh.SSHServer):  # type: ignore[misc] # asyncssh is not in the environment that checks types
    """Forwards ports to any address inside the body: this is how SkyPilot reaches its skylet."""

    def connection_requested(self, *_: object) -> bool:
        return True


def _listening(path: Path) -> socket.socket:
    """A unix socket that appears under its name only once it listens."""
    temporary = path.with_suffix(".new")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(temporary))
    listener.listen(128)
    temporary.rename(path)
    return listener


async def serve(path: Path) -> None:
    """Serve for the life of the body."""
    spec = BodySpec.read(INSIDE.instance)
    metadata = Metadata(spec.instance_id, spec.instance_type, spec.zone, spec.private_ip, INSIDE.instance)
    await asyncio.start_server(metadata.handle, METADATA_ADDRESS, 80)
    egress = str(INSIDE.egress / EGRESS_SOCKET)
    await asyncio.start_server(relay(lambda: asyncio.open_unix_connection(egress)), "127.0.0.1", spec.endpoint_port)

    async def run(process: Any) -> None:
        await _run(process, spec.environment)

    await asyncssh.listen(
        sock=_listening(path),
        server_factory=_Server,
        server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        authorized_client_keys=str(INSIDE.instance / "authorized_keys"),
        process_factory=run,
        encoding=None,
        allow_scp=False,
        sftp_factory=True,
        login_timeout=LOGIN_S,
    )
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
