"""The prompts step against a fake engine of known speed, in virtual time: what is measured, kept and judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from configs.expand import expand
from configs.load import load_sweep, load_technique
from configs.schema import PlannedCell
from configs.steps.prompts import PromptsStep
from configs.steps.smoke import SmokeStep
from configs.visits import Measurement
from tasks.client import Heard, Ready, RequestFailed, Unanswered
from tasks.context import Progress, StepContext
from tasks.frameworks.process import Frameworks
from tasks.guards.finding import Judgement
from tasks.meters import Counters
from tasks.prompts import Prompt
from tasks.steps.prompts import measure, smoke
from tasks.timing.workload_verdict import judge_workload
from tests.tasks.fake_client import FakeClient
from tests.tasks.virtual_time import Clock, run
from warehouse.ledger import Ledger
from warehouse.parts import decode
from warehouse.steps.prompts import PROMPT_REQUESTS, PROMPT_WINDOWS
from warehouse.store import open_store
from warehouse.verdicts import Reason

WORKLOADS = [
    {"name": "qa", "language": "English", "prompt": "Why?", "max_tokens": 40},
    {"name": "ko", "language": "Korean", "prompt": "왜?", "max_tokens": 20, "enable_thinking": False},
]
REPEATS = 3


@pytest.fixture
def mtp() -> PlannedCell:
    return expand(load_sweep("prompts-tiny")).cells[1]


def step(*concurrencies: int, **fields: Any) -> PromptsStep:
    return PromptsStep.model_validate(
        {"step": "prompts", "workloads": WORKLOADS, "concurrencies": concurrencies, "repeats": REPEATS} | fields
    )


class Asked:
    """What one attempt at a prompts step brought."""

    def __init__(self) -> None:
        self.said: dict[str | None, Judgement] = {}
        self.told: list[Progress] = []
        self.rows: dict[str, list[dict[str, Any]]] = {PROMPT_REQUESTS.name: [], PROMPT_WINDOWS.name: []}
        self.asked = 0

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self.rows[PROMPT_REQUESTS.name]

    @property
    def windows(self) -> list[dict[str, Any]]:
        return self.rows[PROMPT_WINDOWS.name]

    def reasons(self, condition: str) -> list[str]:
        return [finding.reason.value for finding in self.said[condition].findings]


def context(folder: Path, planned: PlannedCell, client: FakeClient, spec: Any, number: int, done: Asked) -> Any:
    ledger = Ledger(open_store(str(folder / "store")), "r1")

    def made(frameworks: Frameworks) -> StepContext:
        return StepContext(
            planned=planned, served=planned.cell, client=client, ledger=ledger, measurement=Measurement(spec),
            attempt=number, tell=done.told.append, frameworks=frameworks,
        )  # fmt: skip

    return made


def attempt(
    folder: Path,
    planned: PlannedCell,
    spec: PromptsStep,
    number: int = 1,
    machine: str = "here",
    prepare: Callable[[FakeClient], None] = lambda client: None,
) -> Asked:
    """One attempt with slots of 10 ms a token; what fails in it leaves its rows in the store."""
    done = Asked()

    async def whole(clock: Clock) -> Asked:
        async with FakeClient(planned, clock, [0.01] * 8) as client, Frameworks(folder) as frameworks:
            client.accepted = lambda _: 0.5
            prepare(client)
            ctx = context(folder, planned, client, spec, number, done)(frameworks)
            await ctx.begin({"attempt": number, "machine": machine})
            done.said = {each.condition: each for each in await measure(ctx, spec)}
            done.asked = client.asked["fixed"]
            ledger = Ledger(open_store(str(folder / "store")), "r1")
            for part in await ctx.end():
                if part.table in done.rows:
                    done.rows[part.table] += decode(ledger.store.get(part.key) or b"", part.key)
        return done

    return run(whole)


def hearing(change: Callable[[FakeClient, Ready], Exception | None]) -> Callable[[FakeClient], None]:
    """A client whose requests fail when `change` says so."""

    def prepare(client: FakeClient) -> None:
        hear = client.hear

        async def heard(ready: Ready) -> Heard:
            error = change(client, ready)
            if error is not None:
                client.asked["fixed"] += 1
                raise error
            return await hear(ready)

        client.hear = heard  # type: ignore[method-assign]

    return prepare


def dies_after(number: int) -> Callable[[FakeClient], None]:
    return hearing(lambda client, _: Unanswered("the engine is gone") if client.asked["fixed"] >= number else None)


def test_every_workload_is_asked_at_every_concurrency_as_often_as_said(tmp_path: Path, mtp: PlannedCell) -> None:
    done = attempt(tmp_path, mtp, step(1, 4))
    assert Counter((row["condition"], row["repeat"]) for row in done.requests) == {
        (f"{name} c={number}", repeat): number
        for name in ("qa", "ko")
        for number in (1, 4)
        for repeat in range(REPEATS)
    }
    window = next(row for row in done.windows if row["condition"] == "qa c=4")
    assert (window["requests"], window["completion_tokens"], window["mode"]) == (4, 160, "natural")
    assert window["wall_s"] == pytest.approx(0.2), "half of 40 tokens at 10 ms, four at a time"
    assert window["chars"] == sum(
        row["chars"] for row in done.requests if (row["condition"], row["repeat"]) == ("qa c=4", window["repeat"])
    )
    assert done.asked == (1 + 4) * 2 * (REPEATS + 1), "each has a round to warm up"
    assert {row["language"] for row in done.windows} == {"English", "Korean"}
    assert (done.told[-1].percent, done.told[-1].line) == (100, "ko c=4 3/3: 800 tok/s")


def test_requests_of_a_window_are_sent_together(tmp_path: Path, mtp: PlannedCell) -> None:
    done = attempt(tmp_path, mtp, step(4))
    assert {row["sent_s"] for row in done.requests} == {0.0} and {row["delivered_share"] for row in done.windows} == {
        1.0
    }


def test_a_workload_says_whether_the_model_thinks(tmp_path: Path, mtp: PlannedCell) -> None:
    bodies: dict[str, Any] = {}

    def look(client: FakeClient, ready: Ready) -> None:
        bodies[ready.body["messages"][-1]["content"]] = ready.body

    attempt(tmp_path, mtp, step(1), prepare=hearing(look))
    asked = {text: body.get("chat_template_kwargs", {}) for text, body in bodies.items()}
    assert asked["왜?"]["enable_thinking"] is False
    assert asked["Why?"] == mtp.cell.model.chat_template_kwargs
    answers = [body for body in bodies.values() if body["max_tokens"] > 1]  # others are asked twice, for a cache's sake
    assert len(answers) == 2 and all(body["temperature"] == 0 and "ignore_eos" not in body for body in answers)


def test_a_healthy_engine_is_ok_in_every_condition(tmp_path: Path, mtp: PlannedCell) -> None:
    done = attempt(tmp_path, mtp, step(1, 4))
    assert {name: each.findings for name, each in done.said.items()} == dict.fromkeys(
        ("qa c=1", "ko c=1", "qa c=4", "ko c=4"), ()
    )


def test_a_killed_step_goes_on_behind_the_last_finished_condition(tmp_path: Path, mtp: PlannedCell) -> None:
    with pytest.raises(Unanswered):
        attempt(tmp_path, mtp, step(1), prepare=dies_after(2 * (1 + REPEATS) - 1))
    again = attempt(tmp_path, mtp, step(1), number=2)
    attempts = {name: [row["attempt"] for row in again.windows if row["workload"] == name] for name in ("qa", "ko")}
    assert attempts["qa"] == [1] * REPEATS
    assert attempts["ko"] == [1, 1, *[2] * REPEATS], "what was begun is measured again, whole, and stays readable"
    assert again.asked == 1 + REPEATS
    assert again.said["ko c=1"].verdict == "ok"


def test_another_machine_measures_everything_itself(tmp_path: Path, mtp: PlannedCell) -> None:
    with pytest.raises(Unanswered):
        attempt(tmp_path, mtp, step(1), prepare=dies_after(2 * (1 + REPEATS) - 1))
    again = attempt(tmp_path, mtp, step(1), number=2, machine="elsewhere")
    assert sum(row["attempt"] == 2 for row in again.windows) == 2 * REPEATS


def test_a_dead_draft_is_rejected(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        client.accepted = lambda _: 0.0

    done = attempt(tmp_path, mtp, step(1), prepare=prepare)
    assert {name: done.reasons(name) for name in ("qa c=1", "ko c=1")} == {
        "qa c=1": ["dead_draft"], "ko c=1": ["dead_draft"],
    }  # fmt: skip


def test_a_request_that_failed_rejects_its_condition_and_no_other(tmp_path: Path, mtp: PlannedCell) -> None:
    def fails(client: FakeClient, _: Ready) -> Exception | None:
        return RequestFailed("cut short") if client.asked["fixed"] == 6 else None

    done = attempt(tmp_path, mtp, step(4), prepare=hearing(fails))
    window = done.windows[0]
    assert (window["failed"], window["first_failure"]) == (1, "request 2: cut short")
    assert done.reasons("qa c=4")[0] == "request_failed" and done.reasons("ko c=4") == []


@pytest.mark.parametrize(
    ("at", "said"), [(0, "warm-up, request 0: cut short"), (1, "request 0: cut short")], ids=["warm-up", "timed"]
)
def test_the_only_request_of_a_window_or_of_its_warm_up_may_fail(
    tmp_path: Path, mtp: PlannedCell, at: int, said: str
) -> None:
    def fails(client: FakeClient, _: Ready) -> Exception | None:
        return RequestFailed("cut short") if client.asked["fixed"] == at else None

    done = attempt(tmp_path, mtp, step(1), prepare=hearing(fails))
    assert [row["failed"] for row in done.windows] == [1, 0, 0, 0, 0, 0]
    assert done.windows[0]["first_failure"] == said
    assert done.reasons("qa c=1") == ["request_failed"] and done.reasons("ko c=1") == []


def test_what_an_engine_counts_late_of_a_warm_up_is_in_no_window(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        client.counted_after_s = 0.5

    done = attempt(tmp_path, mtp, step(1), prepare=prepare)
    assert {each.verdict for each in done.said.values()} == {"ok"}


def test_a_window_whose_client_slept_is_measured_again(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        client.naps[("fixed", 1)] = 0.05  # of the first window, behind the warm-up

    done = attempt(tmp_path, mtp, step(1), prepare=prepare)
    assert [row["tries"] for row in done.windows] == [2, 1, 1, 1, 1, 1]
    assert {each.verdict for each in done.said.values()} == {"ok"}


def test_a_workload_whose_prompt_was_read_at_another_length_is_suspect(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        async def counted(prompt: Prompt) -> int:
            return len(prompt.text.split()) + (64 if prompt.text == "Why?" else 0)

        client.count_tokens = counted  # type: ignore[method-assign]

    done = attempt(tmp_path, mtp, step(1, 2), prepare=prepare)
    said = {name: done.reasons(name or "") for name in done.said}
    assert said == {"qa c=1": ["prompt_length"], "qa c=2": ["prompt_length"], "ko c=1": [], "ko c=2": []}


def test_an_engine_that_counts_no_prompts_is_measured_without_that_guard(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        async def absent(prompt: Prompt) -> int:
            raise RequestFailed("/tokenize: HTTP 404")

        client.count_tokens = absent  # type: ignore[method-assign]

    done = attempt(tmp_path, mtp, step(1), prepare=prepare)
    assert {row["counted_prompt_tokens"] for row in done.requests} == {None}
    assert {each.verdict for each in done.said.values()} == {"ok"}


def test_repeats_that_disagree_are_suspect(tmp_path: Path, mtp: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        client.pace = lambda number: 2.0 if number == 2 else 1.0

    done = attempt(tmp_path, mtp, step(1), prepare=prepare)
    assert done.reasons("qa c=1") == ["unsteady"] and done.reasons("ko c=1") == []


def window_of_canvases(tokens: int, slower: float) -> dict[str, Any]:
    """A window of one answer, of canvases of 256 tokens in 16 steps of 25 ms times `slower`."""
    canvases = ceil(tokens / 256)
    counted = Counters(**dict.fromkeys(Counters._fields))._replace(denoising_steps=16 * canvases)
    shape = {"mode": "natural", "concurrency": 1, "requests": 1, "failed": 0, "completion_tokens": tokens}
    return {**shape, "wall_s": 0.4 * canvases * slower, **counted.columns()}


@pytest.mark.parametrize(("slower", "said"), [((1.0, 1.0, 1.0), False), ((1.0, 1.0, 2.0), True)])
def test_canvases_are_steady_by_their_steps_however_much_of_them_an_answer_fills(
    mtp: PlannedCell, slower: tuple[float, ...], said: bool
) -> None:
    served = mtp.cell.model_copy(update={"technique": load_technique("diffusion"), "k": None})
    windows = [window_of_canvases(*each) for each in zip((250, 262, 300), slower, strict=True)]
    judged = judge_workload(served, mtp.gpu, "qa c=1", "natural", windows, [])
    assert (Reason.UNSTEADY in [each.reason for each in judged.findings]) == said


def test_a_smoke_tries_a_few_workloads_and_runs_no_program(tmp_path: Path, mtp: PlannedCell) -> None:
    done = Asked()

    async def whole(clock: Clock) -> list[Any]:
        async with FakeClient(mtp, clock, [0.01]) as client, Frameworks(tmp_path) as frameworks:
            client.accepted = lambda _: 0.5
            ctx = context(tmp_path, mtp, client, SmokeStep(step="smoke"), 1, done)(frameworks)
            found = await smoke(ctx, step(1), 1)
            assert client.asked["fixed"] == 1
            return [each for each in found if each is not None]

    assert run(whole) == []
