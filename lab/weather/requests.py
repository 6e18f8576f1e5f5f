"""Requests to the cloud as its door reads them, and the answers that it gives in AWS's name (standard library only)."""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple
from urllib.parse import parse_qs, unquote

_SCOPE = re.compile(r"/\d{8}/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")
"""Region and service, as every signed request names them (Signature Version 4)."""

_MOST_BYTES = 1 << 30


class Request(NamedTuple):
    """One request, whole."""

    head: bytes
    body: bytes
    service: str
    """`s3`, `ec2`, `sts`, ...; empty where it is not signed."""
    region: str
    is_create: bool
    """An object is written only if it is absent."""
    form: dict[str, list[str]]
    """What EC2 is asked: `Action` and its parameters; empty for other services."""

    @property
    def rents(self) -> bool:
        """Whether it asks EC2 for machines."""
        return self.form.get("Action", [""])[0] in ("RunInstances", "RequestSpotInstances", "CreateFleet")

    @property
    def is_spot(self) -> bool:
        """Whether for spot ones."""
        return "spot" in self.form.get("InstanceMarketOptions.MarketType", [])


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
