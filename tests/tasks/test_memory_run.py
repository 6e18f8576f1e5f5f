"""Memory and power: through the whole node runner beside FAKE cards, and from looks at a card to its figures."""

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_sweep
from configs.steps.memory import MemoryStep
from configs.visits import Measurement
from tasks.context import StepContext
from tasks.frameworks.process import Frameworks
from tasks.meters import Cards, Reading, Sampler, card_columns, opened
from tasks.steps.memory import measure
from tests.busy_machine import PATIENCE_S
from tests.fake_box import FakeBox
from tests.fake_run import FakeRun
from tests.tasks.timed_step import Clock, FakeClient, run
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store
from warehouse.ledger.tables import CARD_COLUMNS, Row, decode

GIB = 1024**3

SUITE = """
name: fake-suite
steps:
  - {step: memory, output_tokens: 16}
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 64, output_tokens: 128, repeats: 3, requests: 2, stream_requests: 0}
"""
GAUGES = """# TYPE transformers:weights_bytes gauge
transformers:weights_bytes{of="target"} 6.2e+10
transformers:weights_bytes{of="assistant"} 1e+09
transformers:gpu_memory_peak_allocated_bytes 6.5e+10
transformers:gpu_memory_peak_reserved_bytes 6.7e+10
transformers:resident_memory_peak_bytes 3e+09
"""
"""As a FAKE of the transformers engine says them, once a request was answered."""

BEFORE = "".join(line + "\n" for line in GAUGES.splitlines() if "gpu_memory" not in line)


@pytest.fixture
def on_a_card(tmp_path: Path) -> dict[str, str]:
    box = FakeBox(tmp_path / "box")
    box.card()
    return box.env | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "tests" / "fake_nvml"), str(ROOT))),
        "FAKE_ENGINE_TOKEN_S": "0.006",
    }


def test_a_start_says_its_memory_at_full_context(tmp_path: Path, node_python: Path, on_a_card: dict[str, str]) -> None:
    run = FakeRun(tmp_path, "mtp", suite=SUITE, max_model_len=1024)
    run.measured(node_python, **on_a_card)
    [row] = run.rows("memory", "memory_starts")
    assert (row["weights_bytes"], row["kv_cache_bytes"]) == (round(1.5 * GIB), 4 * GIB)
    assert (row["kv_tokens"], row["graph_bytes"]) == (65_536, round(0.25 * GIB)), "tokens by the engine's own page"
    assert row["gpu_memory_peak_bytes"] == 70 * GIB, "of the card, by anybody"
    assert row["engine_memory_peak_bytes"] == 2 * GIB, "of the engine's own processes"
    assert 2**20 < row["host_peak_bytes"] < 2 * GIB
    assert (row["context_tokens"], row["output_tokens"], row["completion_tokens"]) == (1008, 16, 16)
    assert 0.98 * 1008 <= row["prompt_tokens"] <= 1008
    assert run.commit("memory").verdict == "ok", run.rows("memory", "verdicts")


def test_energy_is_told_and_a_power_cap_is_fine(tmp_path: Path, node_python: Path, on_a_card: dict[str, str]) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=1024)
    run.measured(node_python, **on_a_card, FAKE_NVML="at_the_limit")
    windows = run.rows("throughput", "windows")
    assert len(windows) == 3
    for row in windows:
        assert row["power_w"] == pytest.approx(100, rel=0.05) and row["energy_from"] == "counter"
        assert row["energy_j"] > 99 * row["wall_s"], "from before the first request to behind the last"
        assert row["throttle_reasons"] == ["sw_power_cap"]
    assert "throttled" not in run.commit("throughput").reasons


def test_a_hot_card_makes_its_windows_suspect(tmp_path: Path, node_python: Path, on_a_card: dict[str, str]) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=1024)
    run.measured(node_python, **on_a_card, FAKE_NVML="hot")
    assert "throttled" in run.commit("throughput").reasons and "throttled" in run.commit("memory").reasons
    [verdict] = run.rows("memory", "verdicts")
    assert "a card held its clock down in 1 of 1 windows: it was too hot (hw_thermal_slowdown)" in verdict["details"]


def test_without_a_driver_one_line_is_said_and_all_is_null(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=1024)
    said = run.measured(node_python, FAKE_ENGINE_TOKEN_S="0.006", PATH="/usr/bin:/bin")
    assert said.count("power and energy aren't measured: no card is used that a driver tells of") == 1
    [row], windows = run.rows("memory", "memory_starts"), run.rows("throughput", "windows")
    told = ("energy_j", "power_w", "gpu_memory_peak_bytes", "clock_mhz_min", "temperature_c_max", "throttle_reasons")
    assert {each[name] for each in (row, *windows) for name in told} == {None}
    assert row["engine_memory_peak_bytes"] is None and row["kv_tokens"] == 65_536


@pytest.mark.slow(4)
def test_other_words_in_a_log_are_null(tmp_path: Path, node_python: Path, on_a_card: dict[str, str]) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=1024)
    run.measured(node_python, lie="reworded_log", **on_a_card)
    [row] = run.rows("memory", "memory_starts")
    assert row["weights_bytes"] is None and row["kv_cache_bytes"] is None and row["kv_tokens"] == 65_536
    [verdict] = run.rows("memory", "verdicts")
    assert (verdict["verdict"], verdict["reasons"]) == ("suspect", ["log_unread"])
    assert "weights, KV cache memory" in verdict["details"][0]


def of_generate(folder: Path, before: str, after: str) -> tuple[Row, list[str]]:
    """The row and its findings, of an engine whose page changes as it answers."""
    planned = expand(load_sweep("transformers-tiny")).cells[2]
    spec = MemoryStep.model_validate({"step": "memory"})

    async def whole(clock: Clock) -> tuple[Row, list[str]]:
        ledger = Ledger(open_store(str(folder / "store")), "r1")
        async with FakeClient(planned, clock, [0.01]) as client, Frameworks(folder) as frameworks:
            counters = client.text

            async def text(path: str) -> str:
                said = await counters(path)
                return said + (after if client.asked["fixed"] else before) if path == "/metrics" else said

            client.text = text  # type: ignore[method-assign]
            ctx = StepContext(
                planned=planned, served=planned.cell, client=client, ledger=ledger, measurement=Measurement(spec),
                attempt=1, tell=lambda progress: None, frameworks=frameworks,
            )  # fmt: skip
            [judgement] = await measure(ctx, spec)
            [part] = [part for part in ctx.parts if part.table == "memory_starts"]
            [row] = decode(ledger.store.get(part.key) or b"", part.key)
            return row, [finding.reason.value for finding in judgement.findings]

    return run(whole)


def test_generate_says_its_memory_in_gauges_behind_the_request_and_is_unread_without_them(tmp_path: Path) -> None:
    row, found = of_generate(tmp_path, BEFORE, GAUGES)
    assert row["weights_bytes"] == 63_000_000_000, "the target's and the assistant's"
    assert row["engine_memory_peak_bytes"] == 67_000_000_000, "no driver tells, so what torch had reserved"
    assert row["host_peak_bytes"] == 3_000_000_000
    assert row["kv_tokens"] is None and row["kv_cache_bytes"] is None and row["graph_bytes"] is None
    assert found == [], "no line of vLLM's log is missed"
    row, found = of_generate(tmp_path / "without", "", "")
    assert row["weights_bytes"] is None and found == ["log_unread"]


@pytest.fixture
def fake_nvml(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "fake_nvml"))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    return monkeypatch


async def test_a_window_is_looked_at_from_its_begin_to_its_end(fake_nvml: pytest.MonkeyPatch) -> None:
    with opened(["GPU-aaaa", "GPU-bbbb"], pytest.fail) as cards:
        async with Sampler(cards) as sampler:
            assert len(sampler.looks) >= 1, "the first look is before the work"
            for _ in range(6):
                before = len(sampler.looks)
                while len(sampler.looks) == before:
                    await asyncio.sleep(0.01)
    looks = sampler.looks
    assert len(looks) >= 7 and {len(each) for each in looks} == {2}
    found = card_columns(looks)
    assert found["power_w"] == pytest.approx(200, rel=0.02), "two cards of 100 W"
    assert found["throttle_reasons"] == [] and found["clock_mhz_min"] == 1980


async def test_without_cards_there_is_no_thread_and_no_look() -> None:
    async with Sampler(None) as sampler:
        await asyncio.sleep(0)
    assert sampler.looks == []


class SlowCards:
    """A driver that answers when it is let, and not without end."""

    def __init__(self) -> None:
        self.let, self.looks = threading.Event(), 0

    def look(self) -> list[Reading]:
        assert self.let.wait(PATIENCE_S)
        self.looks += 1
        assert self.looks < 20, "somebody still looks"
        return []


async def test_a_window_that_is_cancelled_before_its_first_look_leaves_nobody_looking() -> None:
    cards = SlowCards()
    sampler = Sampler(cast(Cards, cards))
    entering = asyncio.create_task(sampler.__aenter__())
    await asyncio.sleep(0.05)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    cards.let.set()
    assert sampler._looking is not None
    await sampler._looking


@pytest.mark.parametrize(
    ("kind", "uuids", "said"),
    [
        ("no_driver", ["GPU-aaaa"], "power and energy aren't measured: NVML says Driver Not Loaded"),
        ("honest", ["MIG-1"], "power and energy aren't measured: NVML says Not Found"),
        ("honest", [], "power and energy aren't measured: no card is used that a driver tells of"),
    ],
)
def test_why_nothing_is_measured_is_told(fake_nvml: pytest.MonkeyPatch, kind: str, uuids: list[str], said: str) -> None:
    fake_nvml.setenv("FAKE_NVML", kind)
    told: list[str] = []
    with opened(uuids, told.append) as cards:
        assert cards is None
    assert told == [said]


@pytest.mark.parametrize("kind", ["honest", "deaf"])
def test_what_a_driver_does_not_show_or_a_card_lacks_is_null(fake_nvml: pytest.MonkeyPatch, kind: str) -> None:
    fake_nvml.setenv("FAKE_NVML", kind)
    with opened(["GPU-aaaa"], pytest.fail) as cards:
        assert cards is not None
        assert (set(cards.look()[0][1:]) == {None}) is (kind == "deaf")
        assert cards.most_bytes_of([1]) is None


def looks(watts: Sequence[float], step_s: float = 0.1, **told: Any) -> list[list[Reading]]:
    """Looks at one card whose counter and power agree: so many watts from each look to the next."""
    made, energy_mj = [], 5_000_000.0
    for number, watt in enumerate(watts):
        known = {"energy_mj": round(energy_mj), "power_mw": round(1000 * watt), "used_bytes": 8, "clock_mhz": 1980}
        known |= {"temperature_c": 60, "reasons": 0}
        made.append([Reading(at_s=100 + number * step_s, **{**known, **told})])  # type: ignore[arg-type]
        energy_mj += 1000 * watt * step_s
    return made


def together(*cards: list[list[Reading]]) -> list[list[Reading]]:
    return [[reading for look in each for reading in look] for each in zip(*cards, strict=True)]


def test_energy_is_the_difference_of_the_counter_and_else_power_is_integrated_by_trapezoids() -> None:
    found = card_columns(looks([200, 400, 600] * 7))
    assert found["energy_j"] == pytest.approx((200 + 400 + 600) * 0.1 * 6 + 200 * 0.1 + 400 * 0.1)
    assert found["power_w"] == pytest.approx(found["energy_j"] / 2.0)
    assert found["energy_from"] == "counter"
    found = card_columns(looks([100 + 10 * number for number in range(21)], energy_mj=None))
    assert found["energy_j"] == pytest.approx(200 * 2.0), "a straight line: its mean times its time"
    assert found["energy_from"] == "samples"


def test_all_cards_of_an_engine_add_up_where_each_is_known_and_the_worst_of_them_is_told() -> None:
    cool, hot = looks([100] * 11), looks([300] * 11, temperature_c=80, clock_mhz=1500, used_bytes=9)
    found = card_columns(together(cool, hot))
    assert (found["energy_j"], found["power_w"]) == (pytest.approx(400), pytest.approx(400))
    assert (found["temperature_c_max"], found["clock_mhz_min"], found["gpu_memory_peak_bytes"]) == (80, 1500, 9)
    assert found["clock_mhz_median"] == (1980 + 1500) / 2
    found = card_columns(together(looks([100] * 11), looks([100] * 11, energy_mj=None, power_mw=None)))
    assert found["energy_j"] is None and found["power_w"] is None and found["energy_from"] is None
    assert found["temperature_c_max"] == 60


def test_nothing_is_null_and_never_zero() -> None:
    names = {column.name for column in CARD_COLUMNS}
    assert card_columns([]) == dict.fromkeys(names)
    silent = dict.fromkeys(("energy_mj", "power_mw", "used_bytes", "clock_mhz", "temperature_c", "reasons"))
    assert card_columns(looks([100] * 11, **silent)) == dict.fromkeys(names)
    for unknown in (
        looks([100] * 11, energy_mj=7, power_mw=None),  # a counter that stands still
        looks([100] * 4),  # a window of a fraction of a second
        looks([100] * 9, energy_mj=None),  # too few samples for an integral
    ):
        assert card_columns(unknown)["energy_j"] is None


def test_clocks_are_those_of_the_work_not_of_the_idle_card_around_it() -> None:
    idle, busy = looks([100] * 3, clock_mhz=210), looks([100] * 9)
    found = card_columns([idle[0], *busy, idle[2]])
    assert found["clock_mhz_min"] == 1980


@pytest.mark.parametrize(
    ("bits", "named"),
    [(0x1, []), (0x2, []), (0x4, ["sw_power_cap"]), (0x40, ["hw_thermal_slowdown"]), (0x80, ["hw_power_brake"])],
)
def test_what_holds_a_clock_down_is_named(bits: int, named: list[str]) -> None:
    assert card_columns(looks([100] * 11, reasons=bits))["throttle_reasons"] == named
