"""Google Cloud Storage's XML API, as far as the store uses it, with the manners by which it differs from S3.

It ignores `If-None-Match` on a PUT, honours `x-goog-if-generation-match: 0`, refuses `x-goog-` beside `x-amz-` headers
(400 ExcessHeaderValues), and checks the signature of a request in its own dialect.
"""

import hashlib
import hmac
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from warehouse.ledger.store import Store, open_store

KEY_ID, SECRET = "GOOGTESTKEY", "google-test-secret"


class Fake(BaseHTTPRequestHandler):
    """A FAKE store's server, without a log."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response_only(status)
        now = self.date_time_string()
        known = {"Date": now, "Last-Modified": now, "Content-Length": str(len(body))}
        for name, value in (known | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


class FakeGoogle(Fake):
    objects: ClassVar[dict[str, bytes]] = {}
    lock: ClassVar[threading.Lock] = threading.Lock()
    failures: ClassVar[list[int]] = []

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.failures:
            return self.answer(self.failures.pop())
        if not self.allowed(body):
            return None
        key = unquote(self.path)
        with self.lock:
            if self.headers.get("x-goog-if-generation-match") == "0" and key in self.objects:
                return self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            self.objects[key] = body
        return self.answer(200)

    def do_GET(self) -> None:
        if not self.allowed(b""):
            return None
        split = urlsplit(self.path)
        if "list-type" in split.query:
            return self.answer(200, self.listing(split.path, parse_qs(split.query)["prefix"][0]))
        found = self.objects.get(unquote(split.path))
        missing = b"<Error><Code>NoSuchKey</Code></Error>"
        return self.answer(404, missing) if found is None else self.answer(200, found)

    def do_HEAD(self) -> None:
        self.answer(200 if unquote(self.path) in self.objects else 404)

    def do_DELETE(self) -> None:
        gone = self.objects.pop(unquote(self.path), None) is None
        self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>") if gone else self.answer(204)

    def listing(self, bucket: str, prefix: str) -> bytes:
        keys = sorted(key.removeprefix(f"{bucket}/") for key in self.objects if key.startswith(f"{bucket}/{prefix}"))
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        entries = (
            f"<Contents><Key>{escape(key)}</Key><LastModified>{now}</LastModified>"
            f"<ETag>{hashlib.md5(self.objects[f'{bucket}/{key}']).hexdigest()}</ETag></Contents>"
            for key in keys
        )
        return f"<ListBucketResult>{''.join(entries)}</ListBucketResult>".encode()

    def allowed(self, body: bytes) -> bool:
        dialects = {name.lower()[:6] for name in self.headers} & {"x-amz-", "x-goog"}
        if dialects == {"x-amz-", "x-goog"}:
            self.answer(400, b"<Error><Code>ExcessHeaderValues</Code></Error>")
        elif "x-goog" in dialects and not self.well_signed(body):
            self.answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        elif f"Credential={KEY_ID}/" not in self.headers.get("Authorization", ""):
            self.answer(403, b"<Error><Code>InvalidAccessKeyId</Code></Error>")
        else:
            return True
        return False

    def well_signed(self, body: bytes) -> bool:
        pattern = r"GOOG4-HMAC-SHA256 Credential=[^/]+/(\S+), SignedHeaders=(\S+), Signature=(\w+)"
        found = re.fullmatch(pattern, self.headers.get("Authorization", ""))
        if found is None or hashlib.sha256(body).hexdigest() != self.headers["x-goog-content-sha256"]:
            return False
        scope, names, signature = found.groups()
        unsigned = {name.lower() for name in self.headers if name.lower().startswith("x-goog")} - set(names.split(";"))
        canonical = [self.command, self.path, "", *(f"{name}:{self.headers[name]}" for name in names.split(";"))]
        canonical += ["", names, self.headers["x-goog-content-sha256"]]
        hashed = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
        text = f"GOOG4-HMAC-SHA256\n{self.headers['x-goog-date']}\n{scope}\n{hashed}"
        key = b"GOOG4" + SECRET.encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return not unsigned and signature == hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


@contextmanager
def serving(fake: type[Fake], **fresh: object) -> Iterator[tuple[str, Any]]:
    """The address of a fake server on loopback, and its class, which holds these."""
    handler = type(fake.__name__, (fake,), fresh)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


@contextmanager
def twin_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Store]]:
    """Two stores of one name, each at an endpoint of its own."""
    monkeypatch.setenv("GS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("GS_SECRET_ACCESS_KEY", SECRET)
    stores = []
    with ExitStack() as servers:
        for _ in range(2):
            url, _ = servers.enter_context(serving(FakeGoogle, objects={}, lock=threading.Lock(), failures=[]))
            monkeypatch.setenv("GS_ENDPOINT_URL", url)
            stores.append(open_store("gs://results/specsweep"))
        yield stores


def copy_all(store: Store, copy: Store) -> None:
    """Every object of one store into another, as `aws s3 sync` or `cp -r` would."""
    for key in store.list(""):
        copy.put(key, store.get(key) or b"")
