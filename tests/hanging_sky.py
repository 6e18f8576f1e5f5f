"""SkyPilot's SDK in front of a server that takes every request, and answers none but that something be cancelled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from flows.clusters.skypilot import api as sky_api
from flows.clusters.skypilot import server as sky_server

HANG_S = 60.0  # longest that it hangs: whoever waits for it has waited in vain


class HangingSdk:
    """Requests that it was asked to cancel are in `cancelled`; `woke`: somebody waited for it to the end."""

    exceptions = SimpleNamespace(**{
        name: type(name, (Exception,), {})
        for name in (
            "ApiServerConnectionError", "ServerTemporarilyUnavailableError", "RequestInterruptedError", "ClientError",
            "ClusterDoesNotExist",
        )
    })  # fmt: skip
    StatusRefreshMode = SimpleNamespace(FORCE="force", NONE="none")

    def __init__(self) -> None:
        self.wakes, self.woke, self.cancelled, self.deaf = threading.Event(), False, list[str](), False

    def down(self, cluster_name: str, purge: bool) -> str:
        return "down-1"

    def status(self, cluster_names: list[str], refresh: object) -> str:
        return "status-1"

    def queue(self, cluster_name: str, all_users: bool) -> str:
        return "queue-1"

    def enabled_clouds(self) -> str:
        return "clouds-1"

    def api_cancel(self, request_ids: list[str]) -> str:
        self.cancelled += request_ids
        return "hang" if self.deaf else "cancel-1"

    def get(self, request_id: str) -> str:
        if not request_id.startswith("cancel"):
            self.wakes.wait(HANG_S)
            self.woke = True
        return request_id


@contextmanager
def hanging_sky(monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingSdk]:
    """Its server hangs during the block, and is not waited for long."""
    sdk = HangingSdk()
    monkeypatch.setattr(sky_server, "ensure_server", lambda: None)
    for module in (sky_server, sky_api):
        monkeypatch.setattr(module, "sdk", lambda: sdk)
        for bound in ("REQUEST_S", "DOWN_S", "LOOK_S"):
            monkeypatch.setattr(module, bound, 0.2, raising=False)
    yield sdk
    sdk.wakes.set()
