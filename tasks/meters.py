"""What an engine counts of itself, and what the driver says of its cards: power, energy, clocks, heat and memory.

The engine's counters are read before and after a piece of work: the second count of every token.

Units, from NVML's reference (docs.nvidia.com, "Device Queries"):
    energy: nvmlDeviceGetTotalEnergyConsumption, mJ since the driver was loaded. Volta and newer.
    power: nvmlDeviceGetPowerUsage, mW; from Ampere on, but for GA100, a mean over the last second.
    memory: nvmlDeviceGetMemoryInfo, bytes in use by anybody, what the driver keeps for itself included.
    clock: nvmlDeviceGetClockInfo, MHz, of the multiprocessors.
    temperature: nvmlDeviceGetTemperature, Celsius, of the die.
    reasons: nvmlDeviceGetCurrentClocksThrottleReasons, bits, why the clock is below what was asked for.

Columns of a timed window:
    energy_j: sum over cards of (counter at the end - counter at the begin). Without a counter it is the integral of
    the card's power by trapezoids, sum of (p[i] + p[i+1]) / 2 x (t[i+1] - t[i]).
    power_w: energy_j over the seconds between the first and the last look, all cards together.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import pairwise, zip_longest
from math import fsum
from statistics import median
from typing import Any, NamedTuple

NAMES = {
    "generation_tokens": ("vllm:generation_tokens_total",),
    "requests_finished": ("vllm:request_success_total",),
    "drafts": ("vllm:spec_decode_num_drafts_total",),
    "draft_tokens": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens": ("vllm:spec_decode_num_accepted_tokens_total",),
    "denoising_steps": ("vllm:diffusion_num_denoising_steps_total",),
    "committed_tokens": ("vllm:diffusion_num_committed_tokens_total",),
    "prefix_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "preemptions": ("vllm:num_preemptions_total",),
}
"""Name of each plain counter in vLLM 0.32.0, then older ones (early v1 engines counted hits of the "gpu" cache, some in
blocks). The first that a page has is read: versions of a transition show both."""

BY_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"

_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Counters(NamedTuple):
    """Running totals of one engine, summed over its engine processes."""

    generation_tokens: float | None
    requests_finished: float | None
    drafts: float | None
    draft_tokens: float | None
    accepted_tokens: float | None
    accepted_by_position: tuple[float, ...] | None
    denoising_steps: float | None
    committed_tokens: float | None
    prefix_hits: float | None
    preemptions: float | None

    def since(self, before: Counters) -> Counters:
        """What was counted between `before` and now; None where either reading lacks the counter."""
        positions, now, then = None, self.accepted_by_position, before.accepted_by_position
        if now is not None and then is not None and len(now) >= len(then):
            positions = tuple(after - earlier for after, earlier in zip_longest(now, then, fillvalue=0.0))
        counted: dict[str, float | None] = {}
        for field in NAMES:
            after, earlier = getattr(self, field), getattr(before, field)
            counted[field] = None if after is None or earlier is None else after - earlier
        return Counters(**counted, accepted_by_position=positions)

    def columns(self) -> dict[str, int | list[int] | None]:
        """As `ENGINE_COLUMNS` of the warehouse names them."""
        told = {f"engine_{field}": getattr(self, field) for field in NAMES if field != "requests_finished"}
        positions = self.accepted_by_position
        return {
            "engine_accepted_by_position": None if positions is None else [*map(int, positions)],
            **{column: None if value is None else int(value) for column, value in told.items()},
        }


def parse(text: str) -> Counters:
    """The counters on a `/metrics` page; None for each that it lacks."""
    totals: dict[str, float] = {}
    by_position: dict[int, float] = {}
    for name, labels, value in samples(text):
        totals[name] = totals.get(name, 0.0) + value
        if name == BY_POSITION:
            position = int(labels["position"])
            by_position[position] = by_position.get(position, 0.0) + value
    plain = {field: next((totals[name] for name in names if name in totals), None) for field, names in NAMES.items()}
    positions = tuple(by_position[position] for position in sorted(by_position)) or None
    return Counters(**plain, accepted_by_position=positions)


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of every figure on a `/metrics` page."""
    for line in text.splitlines():
        found = None if line.startswith("#") else _SAMPLE.match(line)
        if found:
            yield found["name"], dict(_LABEL.findall(found["labels"] or "")), float(found["value"])


LIBRARY = "pynvml"  # module of the package nvidia-ml-py

UNKNOWN = "power and energy aren't measured: {}"


class Reading(NamedTuple):
    """One look at one card; None: the driver doesn't say it of this card."""

    at_s: float  # by `time.monotonic`
    energy_mj: int | None
    power_mw: int | None
    used_bytes: int | None
    clock_mhz: int | None
    temperature_c: int | None
    reasons: int | None


class Cards:
    """The cards of one engine. `look` may be called from any thread."""

    def __init__(self, nvml: Any, uuids: Sequence[str]) -> None:
        """Find the cards. Raises nvml.NVMLError: one of them isn't there."""
        self._nvml = nvml
        self._handles = [nvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]

    def look(self) -> list[Reading]:
        """A reading of every card."""
        return [self._reading(handle) for handle in self._handles]

    def most_bytes_of(self, pids: Collection[int]) -> int | None:
        """Memory of these processes on the card with most of it; None: the driver shows none, as beside a container."""
        taken = [self._bytes_of(handle, pids) for handle in self._handles]
        return max((each for each in taken if each is not None), default=None)

    def _bytes_of(self, handle: Any, pids: Collection[int]) -> int | None:
        shown = self._said(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
        known = [each.usedGpuMemory for each in shown if each.pid in pids and each.usedGpuMemory is not None]
        return sum(known) if known else None

    def _reading(self, handle: Any) -> Reading:
        nvml, said = self._nvml, self._said
        memory = said(nvml.nvmlDeviceGetMemoryInfo, handle)
        return Reading(
            time.monotonic(),
            said(nvml.nvmlDeviceGetTotalEnergyConsumption, handle),
            said(nvml.nvmlDeviceGetPowerUsage, handle),
            None if memory is None else memory.used,
            said(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            said(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            said(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
        )

    def _said(self, ask: Callable[..., Any], *about: Any) -> Any:
        try:
            return ask(*about)
        except self._nvml.NVMLError:
            return None  # not supported by this card, or this driver: its column is null


@contextmanager
def opened(uuids: Sequence[str], tell: Callable[[str], None]) -> Iterator[Cards | None]:
    """The cards, while they are needed; None, and one line why, where nothing can be read off any."""
    if not uuids:
        tell(UNKNOWN.format("no card is used that a driver tells of"))
        yield None
        return
    try:
        nvml = import_module(LIBRARY)
    except ModuleNotFoundError:
        tell(UNKNOWN.format("the package nvidia-ml-py isn't installed here"))
        yield None
        return
    try:
        nvml.nvmlInit()
        cards = Cards(nvml, uuids)
    except nvml.NVMLError as error:
        tell(UNKNOWN.format(f"NVML says {error}"))
        yield None
        return
    try:
        yield cards
    finally:
        nvml.nvmlShutdown()


INTERVAL_S = 0.1
"""Pause between two looks: ten in a window of a second, for clocks, heat and memory. Energy is a counter's difference
over the window, and needs only the first and the last."""


class Sampler:
    """Looks at each card when it is entered, every `INTERVAL_S`, and when it is left; `looks` are known afterwards."""

    def __init__(self, cards: Cards | None) -> None:
        self.looks: list[list[Reading]] = []
        self._cards = cards
        self._begun, self._stopping = threading.Event(), threading.Event()
        self._looking: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Sampler:
        if self._cards is not None:
            self._looking = asyncio.get_running_loop().run_in_executor(None, self._look_until_stopped, self._cards)
            try:
                await asyncio.to_thread(self._begun.wait)
            except BaseException:  # what isn't entered is never left: without this the thread would look for ever
                self._stopping.set()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        if self._looking is not None:
            await self._looking

    def _look_until_stopped(self, cards: Cards) -> None:
        try:
            self.looks.append(cards.look())
        finally:
            self._begun.set()
        while not self._stopping.wait(INTERVAL_S):
            self.looks.append(cards.look())
        self.looks.append(cards.look())


Looks = Sequence[Sequence[Reading]]  # in order of time, each with a reading per card; none: nobody looked

SHORTEST_S = 0.5
"""A shorter window has no energy, since its ends would decide. Counters move in steps of up to a tenth of a second, and
power is a mean over a second."""

LEAST_SAMPLES = 10  # so many readings of power make an integral, where there is no counter

REASONS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
"""Bits of nvmlClocksThrottleReasons that slow a working card; idling and clocks that somebody set are none."""

COUNTER, SAMPLES = "counter", "samples"


def card_columns(looks: Looks) -> dict[str, Any]:
    """The columns of `CARD_COLUMNS` (`warehouse.ledger.tables`), all of them null without a look.

    Clocks are of the looks in between: before its first request and behind its last one a card may idle.
    """
    inside = [reading for look in looks[1:-1] for reading in look]
    everything = [reading for look in looks for reading in look]
    clocks = [reading.clock_mhz for reading in inside if reading.clock_mhz is not None]
    said = [reading.reasons for look in looks[1:] for reading in look if reading.reasons is not None]
    slowed = [name for bit, name in REASONS.items() if any(bits & bit for bits in said)]
    energy, source = _energy(looks) if looks else (None, None)
    return {
        "energy_j": energy,
        "energy_from": source,
        "power_w": None if energy is None else energy / _seconds(looks),
        "gpu_memory_peak_bytes": _most(reading.used_bytes for reading in everything),
        "clock_mhz_min": min(clocks, default=None),
        "clock_mhz_median": median(clocks) if clocks else None,
        "temperature_c_max": _most(reading.temperature_c for reading in everything),
        "throttle_reasons": slowed if said else None,
    }


def _seconds(looks: Looks) -> float:
    return looks[-1][0].at_s - looks[0][0].at_s


def _energy(looks: Looks) -> tuple[float | None, str | None]:
    """Joules of all cards, and where they come from; None: of some card nobody knows."""
    if _seconds(looks) < SHORTEST_S:
        return None, None
    series = [*zip(*looks, strict=True)]
    counted = [_counted(each) for each in series]
    found = [_integral(each) if joules is None else joules for each, joules in zip(series, counted, strict=True)]
    known = [joules for joules in found if joules is not None]
    if len(known) < len(found):
        return None, None
    return fsum(known), SAMPLES if None in counted else COUNTER


def _counted(readings: Sequence[Reading]) -> float | None:
    """A counter that stood still tells nothing: a card that is on takes power."""
    first, last = readings[0].energy_mj, readings[-1].energy_mj
    return None if first is None or last is None or last <= first else (last - first) / 1000


def _integral(readings: Sequence[Reading]) -> float | None:
    known = [(reading.at_s, reading.power_mw / 1000) for reading in readings if reading.power_mw is not None]
    if len(known) < max(LEAST_SAMPLES, len(readings)):
        return None
    return fsum((watt + then) / 2 * (after_s - at_s) for (at_s, watt), (after_s, then) in pairwise(known)) or None


def _most(values: Any) -> int | None:
    return max((value for value in values if value is not None), default=None)
