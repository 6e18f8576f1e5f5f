"""Cards through a FAKE NVML: how they are found, looked at over a window, and what is said where nobody tells."""

from __future__ import annotations

import asyncio
import sys

import pytest

from configs.checkout import ROOT
from tasks.power.nvml import opened
from tasks.power.sampler import Sampler
from tasks.power.window import card_columns

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
