"""A FAKE Hugging Face hub on loopback: one small dataset, and the answers of a hub that refuses."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.loopback import Answering, serving

COMMIT = "c0ffee" + "0" * 34


class FakeHub:
    """What the hub has and how it answers; both may be changed while it runs.

    `refusal`: said to everything, a status with the error code that the real hub sends beside it.
    """

    endpoint: str
    refusal: tuple[int, str] | None = None

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []

    def put(self, hub_id: str, subset: str, split: str, records: list[dict[str, Any]]) -> None:
        """Have one more subset of a dataset, as a file of JSON lines that its card names."""
        self._put(hub_id, f"{subset}.jsonl", split, "".join(json.dumps(record) + "\n" for record in records))

    def put_csv(self, hub_id: str, subset: str, split: str, records: list[dict[str, Any]]) -> None:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(records[0]))
        writer.writeheader()
        writer.writerows(records)
        self._put(hub_id, f"{subset}.csv", split, text.getvalue())

    def _put(self, hub_id: str, name: str, split: str, text: str) -> None:
        self.files[name] = text.encode()
        card = "---\nconfigs:\n"
        for path in sorted(self.files.keys() - {"README.md"}):
            card += f"- config_name: {path.split('.')[0]}\n  data_files:\n  - split: {split}\n    path: {path}\n"
        self.files["README.md"] = f"{card}---\n".encode()
        self.hub_id = hub_id

    def entries(self) -> list[dict[str, Any]]:
        return [
            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for name, data in self.files.items()
        ]


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    hub = FakeHub()

    class Handler(Answering):
        def serve(self) -> None:
            body = self.received().decode()
            hub.asked.append(f"{self.command} {self.path}")
            path = self.path.split("?")[0]
            if hub.refusal:
                status, code = hub.refusal
                self.reply(status, b'{"error": "no"}', {"X-Error-Code": code, "X-Error-Message": "no"} if code else {})
            elif "/resolve/" in path:
                self.file(path.rsplit("/", 1)[1])
            elif "/tree/" in path:
                self.reply(200, json.dumps(hub.entries()).encode())
            elif "/paths-info/" in path:
                self.reply(200, json.dumps([entry for entry in hub.entries() if entry["path"] in body]).encode())
            elif "/revision/" in path or path == f"/api/datasets/{hub.hub_id}":
                siblings = [{"rfilename": name} for name in hub.files]
                info = {"id": hub.hub_id, "_id": "0", "sha": COMMIT, "siblings": siblings, "tags": [], "private": False}
                self.reply(200, json.dumps(info).encode())
            else:
                self.reply(404, b"{}", {"X-Error-Code": "EntryNotFound"})

        def file(self, name: str) -> None:
            if name not in hub.files:
                self.reply(404, b"", {"X-Error-Code": "EntryNotFound"})
                return
            data = hub.files[name]
            digest = hashlib.sha1(data).hexdigest()
            self.reply(200, data, {"ETag": f'"{digest}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"})

        do_GET = do_HEAD = do_POST = serve

    with serving(Handler) as address:
        hub.endpoint = f"http://{address}"
        yield hub
