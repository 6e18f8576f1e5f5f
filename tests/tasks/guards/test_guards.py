"""Each guard on figures that are true and on figures that can't be."""

from __future__ import annotations

import pytest

from configs.load import load_gpu, load_technique
from tasks.guards.drafting import acceptance_out_of_range, dead_draft
from tasks.guards.finding import judge
from tasks.guards.score import EVAL_CHANCE_P, SMOKE_CHANCE_P, at_chance, chance_p
from tasks.guards.speed import impossible_speed, stream_mismatch
from tasks.guards.text import blank_output, truncated
from tasks.guards.tokens import prefix_cache_hit, short_output, token_mismatch
from tasks.meters import Counters, parse
from warehouse.verdicts import Reason, worst

NOTHING = parse("")


def counted(**values: float) -> Counters:
    return NOTHING._replace(**values)


@pytest.mark.parametrize("accepted", [0, 3])
def test_a_draft_whose_tokens_are_not_accepted_is_dead(accepted: int) -> None:
    found = dead_draft(load_technique("mtp"), counted(drafts=100, draft_tokens=400, accepted_tokens=accepted))
    assert found is not None
    assert (found.reason, found.severity) == (Reason.DEAD_DRAFT, "rejected")


def test_an_absent_counter_means_a_dead_draft_only_where_something_should_draft() -> None:
    assert dead_draft(load_technique("mtp"), NOTHING) is not None
    assert dead_draft(load_technique("ar"), NOTHING) is None


def test_an_idle_ngram_is_only_suspect() -> None:
    found = dead_draft(load_technique("ngram"), counted(drafts=0, draft_tokens=0, accepted_tokens=0))
    assert found is not None and found.severity == "suspect"


def test_a_living_draft_passes() -> None:
    alive = counted(drafts=100, draft_tokens=400, accepted_tokens=150)
    assert dead_draft(load_technique("mtp"), alive) is None
    assert acceptance_out_of_range(4, alive) is None
    assert alive.acceptance_length == 2.5


def test_acceptance_above_k_plus_one_is_impossible() -> None:
    assert acceptance_out_of_range(2, counted(drafts=10, accepted_tokens=25)) is not None


def test_every_output_must_have_the_length_asked_for() -> None:
    assert short_output(256, [256, 256]) is None
    found = short_output(256, [256, 250])
    assert found is not None and "1 of 2" in found.sentence


def test_client_and_engine_must_count_the_same() -> None:
    assert token_mismatch(512, counted(generation_tokens=512)) is None
    wrong, absent = token_mismatch(512, counted(generation_tokens=1024)), token_mismatch(512, NOTHING)
    assert wrong is not None and (wrong.reason, wrong.severity) == (Reason.TOKEN_MISMATCH, "rejected")
    assert absent is not None and (absent.reason, absent.severity) == (Reason.NO_ENGINE_COUNTERS, "suspect")


def test_prompts_from_the_cache_are_another_machines_speed() -> None:
    assert prefix_cache_hit(counted(prefix_hits=0)) is None
    assert prefix_cache_hit(counted(prefix_hits=16)) is not None


def test_blank_and_cut_off_answers_are_counted() -> None:
    assert blank_output(["a", " \n"]) is not None
    assert blank_output(["a"]) is None
    assert truncated(["stop", "length"]) is not None
    assert truncated(["stop"]) is None


@pytest.mark.parametrize(("correct", "caught"), [(0, True), (2, True), (3, False), (5, False)])
def test_five_smoke_items_need_three_right(correct: int, caught: bool) -> None:
    assert (at_chance(correct, 5, 0.25, SMOKE_CHANCE_P) is not None) is caught


def test_a_whole_evaluation_must_be_far_above_chance() -> None:
    assert at_chance(14, 48, 0.25, EVAL_CHANCE_P) is not None
    assert at_chance(30, 48, 0.25, EVAL_CHANCE_P) is None
    assert chance_p(0, 5, 0.25) == pytest.approx(1.0)


def test_a_streamed_rate_must_be_the_rate_of_the_same_work() -> None:
    assert stream_mismatch(95, 100) is None
    burst, fast = stream_mismatch(None, 100), stream_mismatch(5000, 100)
    assert burst is not None and burst.reason is Reason.STREAM_BURST
    assert fast is not None and fast.reason is Reason.STREAM_MISMATCH


def test_nothing_is_faster_than_its_memory() -> None:
    assert impossible_speed(100, None) is None
    assert impossible_speed(100, 108.0) is None
    assert impossible_speed(109, 108.0) is not None
    assert load_gpu("h100").bandwidth_gb_s == 3350


def test_the_worst_finding_is_the_verdict() -> None:
    assert worst([]) == "ok"
    assert worst(["suspect", "rejected"]) == "rejected"
    assert judge("c", "fixed", [None, None]).verdict == "ok"
