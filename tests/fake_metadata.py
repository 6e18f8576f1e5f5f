"""A metadata service as EC2's and Google's machines have: real HTTP, the real paths, a notice when a test gives one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.loopback import Answering, serving

TERMINATE = json.dumps({"action": "terminate", "time": "2026-11-23T09:30:00Z"})
REBALANCE = json.dumps({"noticeTime": "2026-11-23T09:20:00Z"})
EC2, GOOGLE, BROKEN = "ec2", "google", "broken"


class FakeMetadata:
    """What one machine's service says; `notice`, `rebalance` and `token` may be changed at any time."""

    url: str
    notice = rebalance = False
    token = "first"

    def __init__(self, cloud: str) -> None:
        self.cloud, self.asked = cloud, list[str]()

    def answer(self, method: str, path: str, headers: Any) -> tuple[int, str]:
        self.asked.append(f"{method} {path}")
        if self.cloud == BROKEN:
            return 500, "an error page"
        if self.cloud == GOOGLE:
            known = path == "/computeMetadata/v1/instance/preempted" and headers["Metadata-Flavor"] == "Google"
            return (200, "TRUE" if self.notice else "FALSE") if known else (404, "")
        if path == "/latest/api/token":
            is_right = method == "PUT" and 1 <= int(headers["X-aws-ec2-metadata-token-ttl-seconds"]) <= 21600
            return (200, self.token) if is_right else (405, "")
        if headers["X-aws-ec2-metadata-token"] != self.token:
            return 401, ""
        if path == "/latest/meta-data/spot/instance-action" and self.notice:
            return 200, TERMINATE
        if path == "/latest/meta-data/events/recommendations/rebalance" and self.rebalance:
            return 200, REBALANCE
        return 404, ""


@contextmanager
def metadata_of(cloud: str) -> Iterator[FakeMetadata]:
    service = FakeMetadata(cloud)

    class Handler(Answering):
        def serve(self) -> None:
            status, text = service.answer(self.command, self.path, self.headers)
            self.reply(status, text.encode(), {"Metadata-Flavor": "Google"} if cloud == GOOGLE else None)

        do_GET = do_PUT = serve

    with serving(Handler) as address:
        service.url = f"http://{address}"
        yield service
