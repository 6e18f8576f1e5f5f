"""The load step on a schedule, in virtual time: when requests are sent, what is kept of it, and who can't follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from configs.expand import expand
from configs.load import load_sweep
from configs.schema import PlannedCell
from configs.steps.load import LoadStep, Offered
from tasks.client import Heard, Ready
from tasks.steps.load import schedule
from tests.tasks.fake_client import FakeClient
from tests.tasks.test_load import PROMPTS, TOKENS, attempt
from tests.tasks.timed_step import dies_after
from warehouse.dataset.loads import Followed, followed

SLOT_S = 0.2
"""Of an answer of 20 tokens at 10 ms: eight slots answer 40 a second."""


@pytest.fixture
def ar() -> PlannedCell:
    return expand(load_sweep("speed-bench-tiny")).cells[0]


def step(*rates: float, **more: Any) -> LoadStep:
    fields = {"step": "load", "dataset": "twin", "rates": rates, "max_tokens": TOKENS, **more}
    return LoadStep.model_validate(fields)


def known(rows: list[dict[str, Any]]) -> Followed:
    found = followed(rows)
    assert found is not None
    return found


def test_each_request_is_sent_when_it_is_due_and_keeps_its_moment(tmp_path: Path, ar: PlannedCell) -> None:
    done = attempt(tmp_path, ar, step(10, arrival="constant"))
    assert [row["due_s"] for row in done.requests] == pytest.approx([number / 10 for number in range(PROMPTS)])
    assert [row["sent_s"] for row in done.requests] == pytest.approx([row["due_s"] for row in done.requests])
    row = done.requests[0]
    assert (row["condition"], row["mode"], row["concurrency"]) == ("load 10/s constant", "open", None)
    assert (row["rate_s"], row["arrival"]) == (10, "constant")
    [window] = done.windows
    assert (window["rate_s"], window["category"], window["delivered_share"]) == (10, None, None)
    assert {each.verdict for each in done.said} == {"ok"}, [each.findings for each in done.said]
    assert {each.mode for each in done.said} == {"open"}
    assert not known(done.requests).is_overloaded


def test_a_schedule_is_made_of_the_load_alone_so_every_cell_and_visit_has_the_same() -> None:
    poisson = Offered(rate_s=4, arrival="poisson")
    assert schedule(poisson, 50) == schedule(poisson, 50) != schedule(Offered(rate_s=5, arrival="poisson"), 50)
    assert schedule(Offered(concurrency=4), 50) == []


def test_poisson_arrivals_share_an_engine_that_follows(tmp_path: Path, ar: PlannedCell) -> None:
    done = attempt(tmp_path, ar, step(20))
    due = [row["due_s"] for row in done.requests]
    assert due[-1] == pytest.approx(PROMPTS / 20), "as many as asked for in the time that they should take"
    assert due == sorted(due) == schedule(Offered(rate_s=20, arrival="poisson"), PROMPTS)
    found = known(done.requests)
    assert not found.is_overloaded and found.in_flight == pytest.approx(20 * SLOT_S, rel=0.35)
    assert found.answered_s == pytest.approx(20, rel=0.35)
    assert {each.verdict for each in done.said} == {"ok"}


def test_an_engine_that_can_not_follow_is_told_from_one_that_can(tmp_path: Path, ar: PlannedCell) -> None:
    done = attempt(tmp_path, ar, step(80))
    found = known(done.requests)
    assert found.is_overloaded and found.answered_s == pytest.approx(40, rel=0.15), "in lumps of eight"
    assert "a second were answered of 80 offered" in found.sentence
    assert {each.verdict for each in done.said} == {"ok"}, "its latencies are true"
    walls = [row["wall_s"] for row in done.requests]
    assert max(walls) > 3 * min(walls)


def test_a_client_that_sends_late_is_the_limit_and_says_so(tmp_path: Path, ar: PlannedCell) -> None:
    def prepare(client: FakeClient) -> None:
        hear = client.hear

        async def dawdling(ready: Ready) -> Heard:
            client.clock.nap(0.06)  # of the 0.1 s between two requests
            return await hear(ready)

        client.hear = dawdling  # type: ignore[method-assign]

    done = attempt(tmp_path, ar, step(10, arrival="constant"), prepare=prepare)
    reasons = {finding.reason.value for each in done.said for finding in each.findings}
    assert "client_limited" in reasons and {each.verdict for each in done.said} == {"suspect"}
    assert min(row["sent_s"] - row["due_s"] for row in done.requests) > 0.05


def test_rates_come_behind_concurrencies_and_a_killed_schedule_is_sent_again_whole(
    tmp_path: Path, ar: PlannedCell
) -> None:
    both = step(20, concurrencies=[2])
    with pytest.raises(Exception, match="gone"):
        attempt(tmp_path, ar, both, prepare=dies_after(6 + PROMPTS + 41))
    again = attempt(tmp_path, ar, both, number=2)
    assert [(row["condition"], row["attempt"], row["requests"]) for row in again.windows] == [
        ("load c=2", 1, PROMPTS),
        ("load 20/s", 2, PROMPTS),
    ]
    assert {row["attempt"] for row in again.requests if row["mode"] == "open"} == {2}
