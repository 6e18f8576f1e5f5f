"""A run of the demo sweep with made-up figures, written through the public ledger as a node would write it."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import Plan, PlannedCell
from configs.steps.eval_tiny import EvalTinyStep
from configs.steps.parity import ParityStep
from configs.steps.throughput import Condition, ThroughputStep
from warehouse.dataset.build import Consolidated, consolidate
from warehouse.ledger.clock import SYSTEM, Clock
from warehouse.ledger.commits import CommitResult, Ledger, Part
from warehouse.ledger.lease import Attempt, Leases
from warehouse.ledger.steps import EVAL_ITEMS, PARITY_OUTPUTS
from warehouse.ledger.store import Store
from warehouse.ledger.tables import PROVENANCE, VERDICTS, Row, Table
from warehouse.ledger.timed_tables import REQUESTS, WINDOWS

FINE: tuple[str, list[str], list[str]] = ("ok", [], [])  # a verdict with nothing to say
WHEN = "2026-11-20T12:00:00.000+00:00"


class StepWriter:
    """Writes one step of one cell: rows as parts, then the commit."""

    def __init__(self, ledger: Ledger, cell_key: str, step: str, attempt: int = 1) -> None:
        self.ledger, self.cell_key, self.step, self.attempt = ledger, cell_key, step, attempt
        self.parts: list[Part] = []

    def write(self, table: Table, rows: Sequence[Row], spent_s: float | None = None) -> Self:
        identity = {
            "run_id": self.ledger.run_id, "cell_key": self.cell_key, "step": self.step, "attempt": self.attempt,
            "measured_at": WHEN,
        }  # fmt: skip
        stamped = [{**identity, **row} for row in rows]
        self.parts.append(self.ledger.write_part(self.cell_key, self.step, table, stamped, self.attempt, spent_s))
        return self

    def judge(self, *verdicts: tuple[str | None, str | None, str, list[str], list[str]]) -> Self:
        names = ("condition", "mode", "verdict", "reasons", "details")
        return self.write(VERDICTS, [dict(zip(names, verdict, strict=True)) for verdict in verdicts])

    def provenance(self, **columns: Any) -> Self:
        known = {
            "git_sha": "01234567" * 5, "git_dirty": False, "config_hash": "feedface00000000", "seed": 0,
            "argv": "vllm serve /models/target --port 8001 --dtype bfloat16", "engine_version": "0.32.0+cpu",
            "gpu_name": "Test CPU", "host": "testhost", "cloud": "local", "spot": False, "price_usd_h": 0.0,
            "price_source": "Your own machine.", "weights": "real", "model_revision": "recipe-1",
        }  # fmt: skip
        return self.write(PROVENANCE, [known | columns])

    def commit(self, verdict: Any = "ok", reasons: Sequence[str] = (), wall_s: float = 36.0) -> CommitResult:
        owner = "host/boot/1/1"
        commit = self.ledger.new_commit(self.step, self.attempt, owner, verdict, reasons, wall_s, self.parts)
        return self.ledger.commit(self.cell_key, commit)


def window(condition: Condition, repeat: int, tok_s: float, *, mode: str = "fixed", **engine: Any) -> Row:
    tokens = condition.output_tokens * max(condition.requests, condition.concurrency)
    return _shape(condition, mode, repeat) | {
        "requests": condition.requests, "wall_s": tokens / tok_s, "completion_tokens": tokens, "chars": tokens * 4,
        **engine,
    }  # fmt: skip


def streamed(condition: Condition, index: int, ttft_ms: float, tpot_ms: float, text: str = "") -> Row:
    return _shape(condition, "stream", 0) | {
        "request_id": f"{condition.name}/stream-0/{index}", "completion_tokens": condition.output_tokens,
        "ttft_ms": ttft_ms, "tpot_ms": tpot_ms, "text": text,
    }  # fmt: skip


def _shape(condition: Condition, mode: str, repeat: int) -> Row:
    return {
        "condition": condition.name, "mode": mode, "context_tokens": condition.context_tokens,
        "output_tokens": condition.output_tokens, "concurrency": condition.concurrency, "repeat": repeat,
    }  # fmt: skip


class Behaviour(NamedTuple):
    tok_s: float
    by_position: tuple[float, ...] = ()
    parity_breaks: tuple[int, ...] = ()
    right: int = 46
    noise: float = 0.02


DEMO = {
    ("bf16", "ar", None): Behaviour(512),
    ("bf16", "mtp", 1): Behaviour(760, (0.88,)),
    ("bf16", "mtp", 2): Behaviour(905, (0.88, 0.74)),
    ("bf16", "mtp", 4): Behaviour(982, (0.87, 0.74, 0.62, 0.5)),
    ("bf16", "ngram", 4): Behaviour(430, (0.21, 0.12, 0.07, 0.03)),
    ("bf16", "draft_model", 4): Behaviour(402, (0.72, 0.5, 0.31, 0.2), (212, 305, 390), 45),
    ("bf16", "dflash", 7): Behaviour(664, (0.82, 0.66, 0.51, 0.38, 0.27, 0.2, 0.12)),
    ("fp8_per_channel", "ar", None): Behaviour(388, right=45),
    ("bf16", "suffix", 8): Behaviour(540, (0.42, 0.31, 0.2, 0.12, 0.08, 0.05, 0.03, 0.01)),
}
"""Figures like those that the demo has on two cores."""

HOSTILE = '<script>alert("pwned")</script><img src=x onerror=alert(1)> & "quoted"'
"""What a model, an engine or a cloud might put into a text."""


def demo_plan() -> Plan:
    return expand(load_sweep(str(ROOT / "tests/warehouse/demo_like/sweep.yaml")))


def mirrored_demo() -> Plan:
    """The demo's plan with every cell measured on the way there and on the way back."""
    plan = demo_plan()
    cells = tuple(each.model_copy(update={"visits": "mirrored"}) for each in plan.cells)
    return plan.model_copy(update={"cells": cells})


def celled(planned: PlannedCell, **cell: Any) -> PlannedCell:
    return planned.model_copy(update={"cell": planned.cell.model_copy(update=cell)})


class DemoRun:
    """A run of the demo's cells, of which a test measures what it needs."""

    def __init__(self, store: Store, run_id: str = "run", clock: Clock = SYSTEM, **plan: Any) -> None:
        self.plan: Plan = demo_plan().model_copy(update=plan)
        self.ledger = Ledger(store, run_id, clock)
        self.ledger.write_plan(self.plan)

    def planned(self, technique: str, k: int | None = None, *, eight_bit: bool = False) -> PlannedCell:
        found = (each for each in self.plan.cells if (each.cell.precision.name == "fp8_per_channel") == eight_bit)
        return next(each for each in found if (each.cell.technique.name, each.cell.k) == (technique, k))

    def key(self, technique: str, k: int | None = None, *, eight_bit: bool = False) -> str:
        return self.planned(technique, k, eight_bit=eight_bit).cell.cell_key

    def step(self, name: str, technique: str, k: int | None = None, *, eight_bit: bool = False) -> StepWriter:
        return StepWriter(self.ledger, self.key(technique, k, eight_bit=eight_bit), name)

    def outputs(self, technique: str, k: int | None, *passes: Mapping[str, Any], gap: float | None = None) -> None:
        """A committed parity step: tokens by prompt in each pass; `gap` is between the best two, everywhere."""
        step = self.step("parity", technique, k)
        step.provenance(machine="node-1 card-1")
        for number, outputs in enumerate(passes):
            step.write(PARITY_OUTPUTS, [
                {"prompt_id": prompt, "pass": number, "token_ids": ids, "top2_gap": gap and [gap] * len(ids)}
                for prompt, ids in outputs.items()
            ])  # fmt: skip
        step.commit()

    def built(self) -> Consolidated:
        return consolidate(self.ledger.store, [self.ledger.run_id])


def only(found: Sequence[dict[str, Any]], **columns: Any) -> dict[str, Any]:
    [row] = [row for row in found if all(row.get(name) == value for name, value in columns.items())]
    return row


def write_demo_run(store: Store, run_id: str = "demo-1", *, text: str = "words", plan: Plan | None = None) -> Plan:
    """All cells and steps of the demo, speeds in two starts; `text` is what the model says, and part of other columns.

    A plan with further steps leaves them to the caller.
    """
    ledger, plan = Ledger(store, run_id), plan or mirrored_demo()
    ledger.write_plan(plan)
    for planned in plan.cells:
        key, behaviour = planned.cell.cell_key, behaviour_of(planned)
        _write(StepWriter(ledger, key, "smoke"), EVAL_ITEMS, [item(index, right=True) for index in range(5)], 4.2)
        for spec in planned.steps:
            if isinstance(spec, ThroughputStep):
                _throughput(ledger, planned, spec, text)
            elif isinstance(spec, ParityStep):
                _write(StepWriter(ledger, key, "parity"), PARITY_OUTPUTS, _outputs(planned, spec, text), 14.0)
            elif isinstance(spec, EvalTinyStep):
                rows = [item(index, right=index < behaviour.right) | {"reasoning": text} for index in range(spec.items)]
                _write(StepWriter(ledger, key, "eval-tiny"), EVAL_ITEMS, rows, 9.5)
        close_attempt(ledger, key)
    for planned in reversed(plan.cells):
        for spec in planned.steps:
            if isinstance(spec, ThroughputStep):
                _throughput(ledger, planned, spec, text, "@2")
    lost = plan.cells[3].cell.cell_key
    close_attempt(ledger, lost, 2, "lost", "the node was preempted: spot capacity reclaimed", f"Traceback\n{text}")
    return plan


def behaviour_of(planned: PlannedCell) -> Behaviour:
    return DEMO[planned.cell.precision.name, planned.cell.technique.name, planned.cell.k]


def close_attempt(
    ledger: Ledger, cell_key: str, number: int = 1, outcome: Any = "completed", reason: str = "", log: str = ""
) -> None:
    Leases(ledger, cell_key).close(Attempt(
        attempt=number, outcome=outcome, reason=reason, owner="host/boot/1/1", started_at=WHEN,
        ended_at="2026-11-20T12:02:13.000+00:00", price_usd_h=0.0, log_tail=log,
    ))  # fmt: skip


def _write(step: StepWriter, table: Table, rows: Sequence[Row], wall_s: float) -> None:
    step.write(table, rows).provenance().judge((None, None, *FINE)).commit(wall_s=wall_s)


def _throughput(ledger: Ledger, planned: PlannedCell, spec: ThroughputStep, text: str, visit: str = "") -> None:
    cell, behaviour = planned.cell, behaviour_of(planned)
    step = StepWriter(ledger, cell.cell_key, f"throughput{visit}")
    draw = random.Random(cell.label + visit)
    looping = cell.technique.name == "suffix"
    for condition in spec.conditions:
        scale = {1: 1.0, 4: 2.3}[condition.concurrency] * (0.8 if condition.context_tokens > 300 else 1.0)
        for repeat in range(condition.repeats.min):
            rate = behaviour.tok_s * scale * draw.gauss(1, behaviour.noise)
            tokens = condition.output_tokens * max(condition.requests, condition.concurrency)
            counts = engine_counts(behaviour.by_position, round(tokens / (1 + sum(behaviour.by_position))))
            step.write(WINDOWS, [window(condition, repeat, rate, **counts)])
        tpot_ms, streams = 1000 / behaviour.tok_s, []
        for index in range(2):
            ttft_ms = 40 * draw.gauss(1, 0.1)
            streams.append(streamed(condition, index, ttft_ms, tpot_ms * draw.gauss(1, 0.03), text))
        step.write(REQUESTS, streams)
        loops = ("suspect", ["looping_text"], ["63% of the output's 4-grams repeat earlier ones"])
        burst = ("rejected", ["stream_burst"], ["all tokens of a stream came in one burst: no TPOT can be read off it"])
        step.judge(
            (condition.name, "fixed", *(loops if looping and condition.name == "long c=1" else FINE)),
            (condition.name, "stream", *(burst if looping else FINE)),
        )
    step.provenance(host=text[:60], argv="vllm serve /another/folder/target --port 9000 --dtype bfloat16")
    step.commit("rejected" if looping else "ok", ["stream_burst"] if looping else [], wall_s=61.5)


def engine_counts(by_position: Sequence[float], drafts: int) -> dict[str, Any]:
    """Counters of an engine that accepted these shares of `drafts`; all null where nothing is drafted."""
    if not by_position:
        return {}
    accepted = [round(share * drafts) for share in by_position]
    return {
        "engine_drafts": drafts, "engine_draft_tokens": drafts * len(by_position),
        "engine_accepted_tokens": sum(accepted), "engine_accepted_by_position": accepted,
    }  # fmt: skip


def _outputs(planned: PlannedCell, spec: ParityStep, text: str) -> list[Row]:
    breaks, rows = behaviour_of(planned).parity_breaks, []
    for number in range(2 if planned.cell.technique.method == "ar" else 1):
        for index in range(spec.n_prompts):
            ids = list(range(index, index + spec.output_tokens))
            if index < len(breaks):
                ids[breaks[index]] = -1
            rows.append({"prompt_id": f"parity-{index:02d}", "pass": number, "token_ids": ids, "text": text})
    return rows


def item(index: int, *, right: bool, first_right: bool | None = None, body: str = "The answer is (A).") -> Row:
    """An answered question; by default the first letter is right one time in five."""
    by_first = index % 5 == 0 if first_right is None else first_right
    return {
        "item_id": f"q-{index:03d}", "kind": "copy", "gold": "A", "last_letter": "A" if right else "B",
        "first_letter": "A" if by_first else "C", "finish_reason": "stop", "completion_tokens": 20, "body": body,
    }  # fmt: skip
