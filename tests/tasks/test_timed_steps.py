"""What all timed steps have in common: what they keep of a lost attempt, what they repeat, and what they believe."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from configs.schema import PlannedCell
from configs.step import MeasuredStep
from configs.steps.depth import DepthStep
from configs.steps.load import LoadStep
from configs.steps.prompts import PromptsStep
from configs.steps.throughput import WARM_UP_LENGTHS, ThroughputStep
from tasks.client import RequestFailed, Unanswered
from tasks.prompts import Prompt
from tests.tasks.timed_step import FakeClient, Measured, Prepare, attempt, changed, dies_after, failing, smoked

TOKENS, PROMPTS = 40, 44  # of each answer, and of the suite
OWN = {"context_tokens": 200, "output_tokens": TOKENS, "repeats": 2, "stream_requests": 0, "warmup": 1}

WORKLOADS = [
    {"name": "qa", "language": "English", "prompt": "Why?", "max_tokens": TOKENS},
    {"name": "ko", "language": "Korean", "prompt": "왜?", "max_tokens": TOKENS},
]


class Case(NamedTuple):
    spec: MeasuredStep
    conditions: tuple[str, str]  # of raw rows
    windows: int  # of the first condition
    warm_up: int  # untimed requests before it
    timed: int  # timed requests in it
    into_second: int  # requests that begin the second one, and don't finish it


CASES = {
    "throughput": Case(
        ThroughputStep.model_validate(
            {"step": "throughput", "prompts": "prose", "conditions": ({"name": "a", **OWN}, {"name": "b", **OWN})}
        ),
        ("a", "b"), 2, 1 + WARM_UP_LENGTHS, 2, 1 + WARM_UP_LENGTHS + 1,
    ),
    "load": Case(
        LoadStep.model_validate({"step": "load", "dataset": "twin", "requests_per_category": 4, "concurrencies": (1, 4),
             "max_tokens": TOKENS}),
        ("load c=1", "load c=4"), 11, 1 + WARM_UP_LENGTHS, PROMPTS, 4 + 30,
    ),
    "depth": Case(
        DepthStep.model_validate(
            {"step": "depth", "prompts": "prose", "depths": (0, 300), "pp_tokens": 200, "tg_tokens": TOKENS,
             "repeats": 2, "peak_window_s": 0.5}
        ),
        ("pp200+tg40", "pp200+tg40 @ d300"), 2, 1 + WARM_UP_LENGTHS, 2, 1 + WARM_UP_LENGTHS + 1,
    ),
    "prompts": Case(
        PromptsStep.model_validate({"step": "prompts", "workloads": WORKLOADS, "repeats": 2}),
        ("qa c=1", "ko c=1"), 2, 1, 2, 1 + 1,
    ),
}  # fmt: skip


SLOW_S = 0.2
"""Seconds of a token: windows last for so long that a busy machine's real delays are no part of them."""


def measured(folder: Path, planned: PlannedCell, spec: MeasuredStep, **how: Any) -> Measured:
    return attempt(folder, planned, spec, (SLOW_S / 2 if spec.step == "load" else SLOW_S,) * 8, **how)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.mark.slow(2)
@pytest.mark.parametrize(("cell", "counted_after_s"), [("ar", 0.0), ("mtp", 0.0), ("mtp", 0.5)])
def test_a_healthy_engine_is_ok(
    tmp_path: Path, request: pytest.FixtureRequest, case: Case, cell: str, counted_after_s: float
) -> None:
    """What it counts late of a warm-up is in no window."""
    late = changed(counted_after_s=counted_after_s)
    done = measured(tmp_path, request.getfixturevalue(cell), case.spec, prepare=late)
    assert {name: reasons for name, reasons in done.found.items() if reasons} == {}
    assert list(dict.fromkeys(row["condition"] for row in done.windows)) == [*case.conditions]
    assert all(row["engine_generation_tokens"] == row["completion_tokens"] for row in done.windows)
    assert done.told[-1].percent == 100


@pytest.mark.slow(2)
def test_a_killed_step_goes_on_behind_the_last_finished_condition(tmp_path: Path, mtp: PlannedCell, case: Case) -> None:
    """What it had begun is measured again, whole, in one start of the engine; what is left of it stays readable."""
    sent = case.warm_up + case.timed + case.into_second
    with pytest.raises(Unanswered):
        measured(tmp_path, mtp, case.spec, prepare=dies_after(sent))
    again = measured(tmp_path, mtp, case.spec, number=2)
    first, second = ([row for row in again.windows if row["condition"] == name] for name in case.conditions)
    assert [row["attempt"] for row in first] == [1] * case.windows
    assert sum(row["requests"] for row in second if row["attempt"] == 2) == case.timed
    assert all(not reasons for reasons in again.found.values())
    third = measured(tmp_path, mtp, case.spec, number=3)
    assert {row["attempt"] for row in third.windows} == {1, 2}, "nothing is left to measure"


@pytest.mark.slow(2)
def test_another_machine_measures_everything_itself(tmp_path: Path, mtp: PlannedCell, case: Case) -> None:
    with pytest.raises(Unanswered):
        measured(tmp_path, mtp, case.spec, prepare=dies_after(case.warm_up + case.timed + case.into_second))
    again = measured(tmp_path, mtp, case.spec, number=2, machine="elsewhere")
    own = [row for row in again.windows if row["attempt"] == 2]
    assert sum(row["requests"] for row in own) == 2 * case.timed


def hits(client: FakeClient) -> None:
    text = client.text

    async def hitting(path: str) -> str:
        asked = sum(client.asked.values())
        named = 'prefix_cache_hits_total{engine="0",model_name="m"}'
        return (await text(path)).replace(f"{named} 0\n", f"{named} {32 * asked}\n")

    client.text = hitting  # type: ignore[method-assign]


@pytest.mark.slow(2)
@pytest.mark.parametrize(
    ("prepare", "reason"),
    [(changed(accepted=lambda _: 0.0), "dead_draft"), (hits, "prefix_cache_hit")],
    ids=["dead draft", "cache"],
)
def test_what_the_engine_gives_away_rejects_every_condition(
    tmp_path: Path, mtp: PlannedCell, case: Case, prepare: Prepare, reason: str
) -> None:
    done = measured(tmp_path, mtp, case.spec, prepare=prepare)
    assert {tuple(reasons) for reasons in done.found.values()} == {(reason,)}
    assert done.verdicts == {"rejected"}


@pytest.mark.slow(2)
@pytest.mark.parametrize(
    ("at", "said"),
    [
        (lambda case: 1, "warm-up, request 0: HTTP 500: out of luck"),
        (lambda case: case.warm_up, "warm-up, request"),
        (lambda case: case.warm_up + 1, "request 0: HTTP 500: out of luck"),
    ],
    ids=["warm-up", "last of the warm-up", "timed"],
)
def test_a_request_that_failed_rejects_what_was_measured_beside_it_and_nothing_else(
    tmp_path: Path, mtp: PlannedCell, case: Case, at: Callable[[Case], int], said: str
) -> None:
    """An engine that fails one request in twenty fails the same share of those that nobody times."""
    done = measured(tmp_path, mtp, case.spec, prepare=failing(at(case)))
    assert [row["failed"] for row in done.windows if row["failed"]] == [1]
    assert done.windows[0]["first_failure"].startswith(said)
    rejected = {each.condition for each in done.said if each.verdict == "rejected"}
    assert all(done.found[name] == ["request_failed"] for name in rejected)
    assert rejected and len(rejected) == len(done.said) / 2


@pytest.mark.slow(2)
def test_no_window_waits_for_a_kernel_of_another_length_of_prompt(tmp_path: Path, ar: PlannedCell, case: Case) -> None:
    """Seen on two H200s: the first 8k prompt of an odd number of tokens took .9 to 1.3 s more than the others."""
    done = measured(tmp_path, ar, case.spec, prepare=changed(compiles_s=50.0))
    assert max(row["wall_s"] for row in done.requests) < 50
    assert all(not reasons for reasons in done.found.values())


@pytest.mark.parametrize("name", ["throughput", "depth", "prompts"])
def test_a_window_whose_client_slept_is_measured_again(tmp_path: Path, ar: PlannedCell, name: str) -> None:
    case = CASES[name]
    kind = ("stream", case.warm_up) if name == "depth" else ("fixed", 1)  # the first behind the warm-up
    done = measured(tmp_path, ar, case.spec, prepare=changed(naps={kind: 0.4 * TOKENS * SLOW_S}))
    assert [row["tries"] for row in done.windows] == [2, 1, 1, 1]
    assert all(not reasons for reasons in done.found.values())
    assert any(each.line.endswith("measured 2 times") for each in done.told)


def counts(tokens: Callable[[int], int] | None) -> Prepare:
    """An engine that counts prompts in its own way; None: not at all."""

    def prepare(client: FakeClient) -> None:
        async def counted(prompt: Prompt) -> int:
            if tokens is None:
                raise RequestFailed("/tokenize: HTTP 404")
            return tokens(len(prompt.text.split()))

        client.count_tokens = counted  # type: ignore[method-assign]

    return prepare


@pytest.mark.slow(2)
@pytest.mark.parametrize("name", ["load", "prompts"])
@pytest.mark.parametrize(("tokens", "reasons"), [(lambda n: n + 64, {"prompt_length"}), (None, set())])
def test_prompts_of_somebody_else_are_read_at_the_length_that_they_have(
    tmp_path: Path, mtp: PlannedCell, name: str, tokens: Callable[[int], int] | None, reasons: set[str]
) -> None:
    done = measured(tmp_path, mtp, CASES[name].spec, prepare=counts(tokens))
    assert done.all_reasons == reasons
    assert (tokens is None) == ({row["counted_prompt_tokens"] for row in done.requests} == {None})


def test_a_smoke_tries_a_few_requests(tmp_path: Path, mtp: PlannedCell, case: Case) -> None:
    found, asked = smoked(tmp_path, mtp, case.spec, 2)
    assert found == [] and sum(asked.values()) == 2
