"""The wire's clock, moved by hand: how long this machine takes for a test decides nothing."""

from __future__ import annotations

import pytest

from tasks.wire import connection, transport


class HandClock:
    """`time.monotonic` of the wire; no time passes but where a test adds it to `now_s`."""

    now_s = 1000.0
    asked = 0

    def __call__(self) -> float:
        self.asked += 1
        return self.now_s


def moved_by_hand(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """Give the wire such a clock; its requests are asked for their patience every real millisecond."""
    clock = HandClock()
    monkeypatch.setattr(transport, "monotonic", clock)
    monkeypatch.setattr(connection, "monotonic", clock)
    monkeypatch.setattr(transport, "TICK_S", 0.001)
    return clock
