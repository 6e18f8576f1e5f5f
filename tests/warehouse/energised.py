"""Runs whose memory and energy are known: made-up starts and windows, with the columns that a FAKE card's told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from configs.steps.memory import CONDITION, MemoryStep
from tests.warehouse.synthetic import DemoRun, StepWriter, demo_plan, window
from tests.warehouse.visited import AR, MTP, SHORT, MinuteByMinute, served
from warehouse.ledger.steps.memory import MEMORY_STARTS, MODE
from warehouse.ledger.store import Store
from warehouse.ledger.timed_tables import WINDOWS
from warehouse.report.display.figures import Row

GIB = 1024**3

SPEC = MemoryStep.model_validate({"step": "memory", "prompts": "listing"})
DFLASH = 6
"""Place of a further cell in the demo's plan."""

KNOWN: Row = {
    "context_tokens": 32752, "output_tokens": 16, "prompt_tokens": 32750, "completion_tokens": 16, "wall_s": 3.0,
    "weights_bytes": 30 * GIB, "kv_cache_bytes": 40 * GIB, "kv_tokens": 180_000, "graph_bytes": GIB,
    "engine_memory_peak_bytes": 72 * GIB, "gpu_memory_peak_bytes": 74 * GIB, "host_peak_bytes": 6 * GIB,
}  # fmt: skip


class EnergisedRun(DemoRun):
    """A run whose cells have a memory step, in visits of a design."""

    def __init__(self, store: Store, design: str = "mirrored", mtp_max_model_len: int | None = None) -> None:
        plan = demo_plan()
        ar = plan.cells[AR].cell
        update = {"visits": design, "steps": (*plan.cells[AR].steps, SPEC)}
        cells = tuple(each.model_copy(update=update | (
            {"control": ar} if design == "bracketed" and not each.cell.technique.is_baseline else {}
        )) for each in plan.cells)  # fmt: skip
        if mtp_max_model_len is not None:
            cells = tuple(served(each, mtp_max_model_len) if at == MTP else each for at, each in enumerate(cells))
        super().__init__(store, "r1", MinuteByMinute(), cells=cells)

    def writer(self, place: int, step: str) -> StepWriter:
        return StepWriter(self.ledger, self.plan.cells[place].cell.cell_key, step)

    def start(self, place: int, visit: str = "", verdict: Sequence[Any] = ("ok", [], []), **said: Any) -> None:
        """One committed start of a cell, or of its control."""
        step = self.writer(place, f"memory{visit}")
        step.provenance(machine="node-1 card-1")
        step.write(MEMORY_STARTS, [{**KNOWN, **said}])
        step.judge((CONDITION, MODE, *verdict))
        step.commit(verdict[0], verdict[1])

    def speed(
        self, place: int, tok_s: float, watts: float | None, visit: str = "", *, machine: str = "node-1 card-1",
        verdict: Sequence[Any] = ("ok", [], []), modes: Sequence[str] = ("fixed",), **told: Any,
    ) -> None:  # fmt: skip
        """One committed visit of a throughput step, three windows a mode, at so many watts; None: no card told any."""
        step = self.writer(place, f"throughput{visit}")
        step.provenance(machine=machine)
        rows = [window(SHORT, number, tok_s, mode=mode) for mode in modes for number in range(3)]
        if watts is not None:
            rows = [row | {"energy_j": watts * row["wall_s"], "power_w": watts, "energy_from": "counter"} | told
                    for row in rows]  # fmt: skip
        step.write(WINDOWS, rows)
        step.judge(*((SHORT.name, mode, *verdict) for mode in modes))
        step.commit(verdict[0], verdict[1])
