"""Kernels that an engine compiles for a kind of prompt length: in no window of a load, whoever started the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from configs.schema import PlannedCell
from configs.steps.throughput import WARM_UP_LENGTHS
from tasks.guards.tokens import FEWEST_SEEN
from tests.tasks import test_load
from tests.tasks.fake_client import FakeClient
from tests.tasks.test_load import attempt, dies_after, step

mtp = test_load.mtp

ANSWER_S = 0.1
"""Of 20 tokens at 10 ms, half of which are drafts."""


def compiling(kept: list[FakeClient], more: Callable[[FakeClient], None]) -> Callable[[FakeClient], None]:
    def prepare(client: FakeClient) -> None:
        client.compiles_s = 1.0
        more(client)
        kept.append(client)

    return prepare


def test_no_window_waits_for_a_kernel_of_another_length(tmp_path: Path, mtp: PlannedCell) -> None:
    """One second in `load c=1, coding` of the first control."""
    kept: list[FakeClient] = []
    done = attempt(tmp_path, mtp, step(1, 4), prepare=compiling(kept, lambda client: None))
    assert max(row["wall_s"] for row in done.requests) == pytest.approx(ANSWER_S)
    asked_twice = 2 * FEWEST_SEEN
    assert kept[0].asked["prefill"] == WARM_UP_LENGTHS + asked_twice, "before the first load only"
    assert {each.verdict for each in done.said} == {"ok"}


def test_so_it_is_in_a_second_start_of_the_engine(tmp_path: Path, mtp: PlannedCell) -> None:
    kept: list[FakeClient] = []
    with pytest.raises(Exception, match="gone"):
        attempt(tmp_path, mtp, step(1), prepare=compiling(kept, dies_after(20)))
    done = attempt(tmp_path, mtp, step(1), number=2, prepare=compiling(kept, lambda client: None))
    assert max(row["wall_s"] for row in done.requests if row["attempt"] == 2) == pytest.approx(ANSWER_S)


def test_an_engine_that_is_not_to_be_warmed_up_meets_no_other_length(tmp_path: Path, mtp: PlannedCell) -> None:
    kept: list[FakeClient] = []
    spec = step(1).model_copy(update={"warmup": 0})
    done = attempt(tmp_path, mtp, spec, prepare=compiling(kept, lambda client: None))
    assert max(row["wall_s"] for row in done.requests) == pytest.approx(1 + ANSWER_S)
