"""Cards through a FAKE NVML: how they are found, looked at over a window, and what is said where nobody tells."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import cast

import pytest

from configs.checkout import ROOT
from tasks.power import Cards, Reading, Sampler, card_columns, opened

FAKE = str(ROOT / "tests" / "fake_nvml")


@pytest.fixture
def fake_nvml(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.syspath_prepend(FAKE)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    return monkeypatch


def test_a_window_is_looked_at_from_its_begin_to_its_end(fake_nvml: pytest.MonkeyPatch) -> None:
    async def window() -> Sampler:
        with opened(["GPU-aaaa", "GPU-bbbb"], pytest.fail) as cards:
            async with Sampler(cards) as sampler:
                assert len(sampler.looks) >= 1, "the first look is before the work"
                for _ in range(6):
                    before = len(sampler.looks)
                    while len(sampler.looks) == before:
                        await asyncio.sleep(0.01)
        return sampler

    looks = asyncio.run(window()).looks
    assert len(looks) >= 7 and {len(each) for each in looks} == {2}
    found = card_columns(looks)
    assert found["power_w"] == pytest.approx(200, rel=0.02), "two cards of 100 W"
    assert found["throttle_reasons"] == [] and found["clock_mhz_min"] == 1980


def test_without_cards_there_is_no_thread_and_no_look() -> None:
    async def window() -> Sampler:
        async with Sampler(None) as sampler:
            await asyncio.sleep(0)
        return sampler

    assert asyncio.run(window()).looks == []


class SlowCards:
    """A driver that answers when it is let, and not without end."""

    def __init__(self) -> None:
        self.let, self.looks = threading.Event(), 0

    def look(self) -> list[Reading]:
        assert self.let.wait(10)
        self.looks += 1
        assert self.looks < 20, "somebody still looks"
        return []


def test_a_window_that_is_cancelled_before_its_first_look_leaves_nobody_looking() -> None:
    async def cancelled(cards: SlowCards) -> None:
        sampler = Sampler(cast(Cards, cards))
        entering = asyncio.create_task(sampler.__aenter__())
        await asyncio.sleep(0.05)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        cards.let.set()
        assert sampler._looking is not None
        await sampler._looking

    asyncio.run(cancelled(SlowCards()))


@pytest.mark.parametrize(
    ("kind", "uuids", "said"),
    [
        ("no_driver", ["GPU-aaaa"], "power and energy aren't measured: NVML says Driver Not Loaded"),
        ("honest", ["MIG-1"], "power and energy aren't measured: NVML says Not Found"),
        ("honest", [], "power and energy aren't measured: no card is used that a driver tells of"),
    ],
)
def test_why_nothing_is_measured_is_one_line(
    fake_nvml: pytest.MonkeyPatch, kind: str, uuids: list[str], said: str
) -> None:
    fake_nvml.setenv("FAKE_NVML", kind)
    told: list[str] = []
    with opened(uuids, told.append) as cards:
        assert cards is None
    assert told == [said]


def test_sensors_that_a_card_lacks_are_null(fake_nvml: pytest.MonkeyPatch) -> None:
    fake_nvml.setenv("FAKE_NVML", "deaf")
    with opened(["GPU-aaaa"], pytest.fail) as cards:
        assert cards is not None
        assert set(cards.look()[0][1:]) == {None}
        assert cards.most_bytes_of([1]) is None


def test_memory_of_processes_that_the_driver_numbers_otherwise_is_unknown(fake_nvml: pytest.MonkeyPatch) -> None:
    with opened(["GPU-aaaa"], pytest.fail) as cards:
        assert cards is not None
        assert cards.most_bytes_of([1]) is None
