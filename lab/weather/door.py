"""The door of the lab's cloud: passes requests on to moto, through whatever the weather is (standard library only).

Requests signed for S3 go through the store's door, all others through the cloud's; unsigned ones meet no weather.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import parse_qs, unquote

from lab.bodies.relay import pump
from lab.weather.conditions import CLOUD, STORE, Conditions

_SCOPE = re.compile(r"/\d{8}/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")  # region, service (Signature Version 4)
_MOST_BYTES = 1 << 30
RENTING = ("RunInstances", "RequestSpotInstances", "CreateFleet")  # what asks EC2 for machines


class Request(NamedTuple):
    """One request, whole."""

    head: bytes
    body: bytes
    service: str  # `s3`, `ec2`, `sts`, ...; empty where it is not signed
    region: str
    is_create: bool  # an object is written only if it is absent
    form: dict[str, list[str]]  # what EC2 is asked: `Action` and its parameters; empty for other services


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    """The next request of a connection; None: the client has left."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    if fields.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        kept = [line for line in lines if not line.lower().startswith("expect:")]
        head = "\r\n".join(kept).encode("latin-1")
    if fields.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunks(reader)
    else:
        body = await reader.readexactly(min(int(fields.get("content-length", "0")), _MOST_BYTES))
    scope = _SCOPE.search(unquote(lines[0]) + fields.get("authorization", ""))
    region, service = (scope[1], scope[2]) if scope else ("", "")
    is_create = service == "s3" and lines[0].startswith("PUT ") and fields.get("if-none-match") == "*"
    form = parse_qs(body.decode("utf-8")) if service == "ec2" else {}
    return Request(head, body, service, region, is_create, form)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    """A chunked body as it came, sizes and trailer included."""
    said = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        said += line
        size = int(line.split(b";")[0], 16)
        if not size:
            break
        said += await reader.readexactly(size + 2)
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        said += line
    return said + line


def refusal(request: Request, status: str, code: str, message: str) -> bytes:
    """An error as the service that was asked words it."""
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    if request.service != "s3":
        error = f"<Response><Errors>{error}</Errors><RequestID>lab-weather</RequestID></Response>"
    content = f'<?xml version="1.0" encoding="UTF-8"?>\n{error}'.encode()
    lines = (f"HTTP/1.1 {status}", "Content-Type: text/xml", f"Content-Length: {len(content)}")
    # a HEAD has no body, and what follows it would be taken for the next answer
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if request.head.startswith(b"HEAD ") else content)


_CHUNK = 1 << 16


class _Reset(Exception):
    """This connection ends without an answer."""


class Door:
    """Stands before one server on this machine."""

    def __init__(self, conditions: Conditions, port: int, draw: Callable[[], float] = random.random) -> None:
        """Open from now on, before the server on `port`; `draw` gives 0 to 1, for what happens to a share."""
        self._conditions, self._behind, self._draw = conditions, port, draw
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._socket.getsockname()[1]

    async def serve(self) -> None:
        """Serve for ever."""
        server = await asyncio.start_server(self._serve_connection, sock=self._socket)
        async with server:
            await server.serve_forever()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers: asyncio.Task[None] | None = None
        far_writer: asyncio.StreamWriter | None = None
        try:
            while (request := await read_request(reader, writer)) is not None:
                refused = await self._weathered(request, reader)
                if refused:
                    writer.write(refused)
                    await writer.drain()
                    continue
                if far_writer is None or answers is None:
                    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._behind)
                    answers = asyncio.create_task(pump(far_reader, writer))
                is_lost = self._happens(request, "lost-answer")
                if is_lost:
                    answers.cancel()
                    await asyncio.wait([answers])
                far_writer.write(request.head + request.body)
                await far_writer.drain()
                if is_lost:
                    await far_reader.read(1)
                    raise _Reset
        except (_Reset, ConnectionError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            if answers is not None:  # the loop itself does not keep a task
                answers.cancel()
            for each in (far_writer, writer):
                if each is not None:
                    each.close()

    async def _weathered(self, request: Request, reader: asyncio.StreamReader) -> bytes | None:
        """What a request gets instead of being passed on; None: it is, perhaps later."""
        if not request.service:
            return None
        where = STORE if request.service == "s3" else CLOUD
        await asyncio.sleep(self._conditions.amount(where, "delay") or 0.0)
        if self._conditions.amount(where, "half-open"):
            while await reader.read(_CHUNK):  # until the client gives up
                pass
            raise _Reset
        if self._conditions.amount(where, "away") or self._happens(request, "cut"):
            raise _Reset
        if self._happens(request, "slow-down"):
            code = "SlowDown" if where == STORE else "RequestLimitExceeded"
            return refusal(request, "503 Service Unavailable", code, "Please reduce your request rate.")
        if request.is_create and self._happens(request, "conflict"):
            message = "The conditional request cannot succeed due to a conflicting operation against this resource."
            return refusal(request, "409 Conflict", "ConditionalRequestConflict", message)
        return self._refused_by_region(request) if request.service == "ec2" else None

    def _refused_by_region(self, request: Request) -> bytes | None:
        def has(what: str) -> bool:
            return any(self._conditions.amount(where, what) for where in (CLOUD, request.region))

        if has("unauthorized"):
            message = "You are not authorized to perform this operation."
            return refusal(request, "403 Forbidden", "UnauthorizedOperation", message)
        if request.form.get("Action", [""])[0] not in RENTING or not has("quota"):
            return None
        if "spot" in request.form.get("InstanceMarketOptions.MarketType", []):
            message = "Max spot instance count exceeded"
            return refusal(request, "400 Bad Request", "MaxSpotInstanceCountExceeded", message)
        message = (
            "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket "
            "that the specified instance type belongs to."
        )
        return refusal(request, "400 Bad Request", "VcpuLimitExceeded", message)

    def _happens(self, request: Request, what: str) -> bool:
        where = STORE if request.service == "s3" else CLOUD
        share = self._conditions.amount(where, what) if request.service else None
        return share is not None and self._draw() < share
