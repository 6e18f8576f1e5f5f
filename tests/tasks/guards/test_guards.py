"""Each guard on figures that are true and on figures that can't be."""

from __future__ import annotations

import pytest

from configs.engine import Serving
from configs.load import load_model, load_replay, load_technique
from tasks.guards.answers import (
    ANY_SUSPECT,
    EVAL_CHANCE_P,
    NONE_ALLOWED,
    SMOKE_CHANCE_P,
    at_chance,
    blank_output,
    chance_p,
    truncated,
)
from tasks.guards.drafting import (
    acceptance_mismatch,
    acceptance_out_of_range,
    baseline_drafts,
    dead_draft,
    replay_missed,
)
from tasks.guards.finding import judge
from tasks.guards.machine import same_experts, throttled
from tasks.guards.tokens import counters_vanished, failed_requests, prefix_cache_hit, short_output, token_mismatch
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


def test_a_draft_that_may_pause_in_large_batches_is_dead_only_where_nothing_of_it_is_accepted() -> None:
    idle, refused = counted(drafts=0, draft_tokens=0, accepted_tokens=0), counted(drafts=100, accepted_tokens=0)
    dynamic = load_technique("mtp-dynamic-k")
    assert dead_draft(dynamic, idle) is None
    found = dead_draft(dynamic, refused)
    assert found is not None and (found.reason, found.severity) == (Reason.DEAD_DRAFT, "rejected")
    never = {"num_speculative_tokens_per_batch_size": [[1, 4, 4], [5, 512, 2]]}
    assert dead_draft(dynamic.model_copy(update={"speculative_config": never}), idle) is not None


def test_an_idle_ngram_is_only_suspect() -> None:
    found = dead_draft(load_technique("ngram"), counted(drafts=0, draft_tokens=0, accepted_tokens=0))
    assert found is not None and found.severity == "suspect"


@pytest.mark.parametrize(
    ("k", "accepted"), [(4, 1.5), (15, 0.28), (1, 0.6)], ids=["MTP", "DFlash out of its depth", "one token"]
)
def test_a_living_draft_passes_however_many_tokens_it_proposes(k: int, accepted: float) -> None:
    alive = counted(drafts=1000, draft_tokens=1000 * k, accepted_tokens=1000 * accepted)
    assert dead_draft(load_technique("dflash"), alive) is None
    assert acceptance_out_of_range(k, alive) is None


@pytest.mark.parametrize("k", [1, 4, 15])
def test_a_draft_that_guesses_is_dead_however_many_tokens_it_proposes(k: int) -> None:
    guessing = counted(drafts=1000, draft_tokens=1000 * k, accepted_tokens=11)
    assert dead_draft(load_technique("dflash"), guessing) is not None


@pytest.mark.parametrize(("per_draft", "fires"), [(2.1, False), (2.3, False), (1.6, True), (3.0, True), (0.0, True)])
def test_a_replay_accepts_what_its_table_says(per_draft: float, fires: bool) -> None:
    replayed = load_replay("mtp-gb10-31b").at(4)
    mtp = load_technique("mtp")
    found = replay_missed(mtp, replayed, counted(drafts=480, accepted_tokens=480 * per_draft))
    assert (found is not None) == fires
    assert found is None or (found.reason, found.severity) == (Reason.REPLAY_MISSED, "rejected")
    assert replay_missed(mtp, None, counted(drafts=480, accepted_tokens=1)) is None


@pytest.mark.parametrize(
    ("per_batch", "accepted", "fires"),
    [({2: 4800}, 1.0, False), ({1: 2400, 4: 2400}, 1.0, False), ({2: 4800}, 1.3, True), ({2: 4800}, 0.7, True)],
    ids=["2 of 4 in a batch of 8", "1 or 4, by the text", "too many", "too few"],
)
def test_a_replay_that_drafts_fewer_tokens_than_k_accepts_what_its_table_has_for_those(
    per_batch: dict[int, int], accepted: float, fires: bool
) -> None:
    """As `mtp-dynamic-k` and `mtp-adaptive` do; one with a K of its own may not."""
    replayed = load_replay("mtp-gb10-31b").at(4)
    told = accepted * sum(steps * sum(replayed.rates[:drafted]) for drafted, steps in per_batch.items())
    drafted = sum(each * steps for each, steps in per_batch.items())
    counts = counted(drafts=4800, draft_tokens=drafted, accepted_tokens=told)
    for name, is_missed in (("mtp-dynamic-k", fires), ("mtp-adaptive", fires), ("mtp", True)):
        assert (replay_missed(load_technique(name), replayed, counts) is not None) == is_missed, name


def test_more_accepted_than_drafted_is_impossible() -> None:
    assert acceptance_out_of_range(2, counted(drafts=10, accepted_tokens=25)) is not None
    assert acceptance_out_of_range(4, counted(drafts=10, draft_tokens=12, accepted_tokens=25)) is not None
    assert acceptance_out_of_range(4, counted(drafts=10, draft_tokens=40, accepted_tokens=25)) is None
    assert acceptance_out_of_range(4, NOTHING) is None


def test_no_position_is_accepted_more_often_than_the_one_before_it() -> None:
    falling, rising = (NOTHING._replace(accepted_by_position=each) for each in ((9.0, 4.0, 4.0), (4.0, 9.0, 0.0)))
    assert acceptance_out_of_range(3, falling) is None
    assert acceptance_out_of_range(3, rising) is not None


def test_an_ar_cell_whose_engine_drafts_is_rejected() -> None:
    drafts = counted(drafts=10, draft_tokens=40, accepted_tokens=25)
    found = baseline_drafts(load_technique("ar"), drafts)
    assert found is not None and (found.reason, found.severity) == (Reason.BASELINE_DRAFTS, "rejected")
    assert baseline_drafts(load_technique("ar"), NOTHING) is None
    assert baseline_drafts(load_technique("mtp"), drafts) is None


SHOWN = {"generation_tokens": 512.0, "prefix_hits": 0.0, "preemptions": 0.0}
DRAFTED = {"drafts": 0.0, "draft_tokens": 0.0, "accepted_tokens": 0.0}


@pytest.mark.parametrize(
    ("technique", "shown", "missing"),
    [
        ("ar", SHOWN, None),
        ("ar", {"generation_tokens": 512.0}, "vllm:prefix_cache_hits_total, vllm:num_preemptions_total"),
        ("mtp", SHOWN | DRAFTED, None),
        ("mtp", SHOWN, "vllm:spec_decode_num_drafts_total"),
        ("diffusion", SHOWN | {"denoising_steps": 9.0}, None),
        ("diffusion", SHOWN, "vllm:diffusion_num_denoising_steps_total"),
        ("ar", {}, None),
    ],
)
def test_a_counter_that_a_guard_needs_is_missed(technique: str, shown: dict[str, float], missing: str | None) -> None:
    found = counters_vanished(load_technique(technique), counted(**shown))
    assert (found is not None) is (missing is not None)
    if found is not None and missing is not None:
        assert (found.reason, found.severity) == (Reason.COUNTERS_VANISHED, "suspect")
        assert missing in found.sentence


def test_older_engines_name_the_prefix_cache_otherwise() -> None:
    older, both = 'vllm:gpu_prefix_cache_hits_total{engine="0"} 7\n', 'vllm:prefix_cache_hits_total{engine="0"} 9\n'
    assert parse(older).prefix_hits == 7
    assert parse(older + both).prefix_hits == 9, "one cache under two names is counted once"


def test_positions_that_are_first_counted_in_a_window_were_at_zero_before_it() -> None:
    pages = [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{at}"}} 3\n' for at in (0, 1)]
    one, two = parse(pages[0]), parse(pages[0] + pages[1])
    assert two.since(one).accepted_by_position == (0.0, 3.0)
    assert one.since(two).accepted_by_position is None


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
    off, on = Serving(max_model_len=2048), Serving(max_model_len=2048, prefix_cache=True)
    assert prefix_cache_hit(counted(prefix_hits=0), on) is None
    hit, allowed = (prefix_cache_hit(counted(prefix_hits=16), serving) for serving in (off, on))
    assert hit is not None and "serving.prefix_cache" not in hit.sentence
    assert allowed is not None and allowed.severity == "rejected" and "serving.prefix_cache is true" in allowed.sentence


def test_one_blank_or_cut_off_answer_of_198_says_nothing_about_the_others() -> None:
    assert blank_output(["a"] * 197 + [" \n"]) is None
    assert truncated(["stop"] * 197 + ["length"]) is None


@pytest.mark.parametrize(("odd", "blank", "cut"), [(3, "suspect", None), (5, "suspect", "suspect")])
def test_blank_and_cut_off_answers_are_shares(odd: int, blank: str, cut: str | None) -> None:
    found = blank_output(["a"] * (198 - odd) + [""] * odd), truncated(["stop"] * (198 - odd) + ["length"] * odd)
    assert [each and each.severity for each in found] == [blank, cut]
    rejected = blank_output(["a"] * 178 + [""] * 20), truncated(["stop"] * 158 + ["length"] * 40)
    assert [each and each.severity for each in rejected] == ["rejected", "rejected"]


def test_of_a_few_answers_every_one_counts() -> None:
    gate, few = blank_output(["a"] * 19 + [""], NONE_ALLOWED), truncated(["stop", "stop", "length"], ANY_SUSPECT)
    assert gate is not None and gate.severity == "rejected"
    assert few is not None and few.severity == "suspect"


@pytest.mark.parametrize(("correct", "caught"), [(0, True), (2, True), (3, False), (5, False)])
def test_five_smoke_items_need_three_right(correct: int, caught: bool) -> None:
    assert (at_chance(correct, 5, 0.25, SMOKE_CHANCE_P) is not None) is caught


def test_a_whole_evaluation_must_be_far_above_chance() -> None:
    assert at_chance(14, 48, 0.25, EVAL_CHANCE_P) is not None
    assert at_chance(30, 48, 0.25, EVAL_CHANCE_P) is None
    assert chance_p(0, 5, 0.25) == pytest.approx(1.0)


def test_the_worst_finding_is_the_verdict() -> None:
    assert worst([]) == "ok"
    assert worst(["suspect", "rejected"]) == "rejected"
    assert judge("c", "fixed", [None, None]).verdict == "ok"


def drafted(steps: int | None, accepted: int | None, tokens: int = 64) -> dict[str, int | None]:
    """A row of `requests` with K = 4."""
    drafts = None if steps is None else 4 * steps
    return {
        "completion_tokens": tokens,
        "engine_draft_steps": steps,
        "engine_draft_tokens": drafts,
        "engine_accepted_tokens": accepted,
    }


@pytest.mark.parametrize("rows", [[drafted(15, 46)] * 4, [drafted(20, 44)] * 2, [drafted(0, 0)], [drafted(15, 52)]])
def test_drafts_by_request_that_add_up_are_believed(rows: list[dict[str, int]]) -> None:
    sums = {name: sum(row[f"engine_{name}"] for row in rows) for name in ("draft_steps", "accepted_tokens")}
    drafted_tokens = 4 * sums["draft_steps"]
    engine = counted(drafts=sums["draft_steps"], draft_tokens=drafted_tokens, accepted_tokens=sums["accepted_tokens"])
    assert acceptance_mismatch(4, rows, engine) is None


@pytest.mark.parametrize(
    ("rows", "engine", "said"),
    [
        ([drafted(15, 46)], counted(drafts=16, draft_tokens=60, accepted_tokens=46), "15 draft steps"),
        ([drafted(15, 46)], counted(drafts=15, draft_tokens=60, accepted_tokens=45), "46 accepted tokens"),
        ([drafted(15, 46)], counted(drafts=15, draft_tokens=64, accepted_tokens=46), "60 drafted tokens"),
        ([drafted(30, 60)], counted(drafts=30, draft_tokens=120, accepted_tokens=60), "a request of 64 tokens"),
    ],
)
def test_drafts_by_request_that_can_not_be_are_rejected(
    rows: list[dict[str, int]], engine: Counters, said: str
) -> None:
    found = acceptance_mismatch(4, rows, engine)
    assert found is not None and (found.reason, found.severity) == (Reason.ACCEPTANCE_MISMATCH, "rejected")
    assert said in found.sentence


def test_an_engine_that_says_nothing_of_its_drafts_by_request_is_not_accused() -> None:
    engine = counted(drafts=15, draft_tokens=60, accepted_tokens=46)
    assert acceptance_mismatch(4, [drafted(15, 46), drafted(None, None)], engine) is None
    assert acceptance_mismatch(4, [], engine) is None


def test_a_window_with_a_failed_request_is_rejected_with_what_it_got() -> None:
    whole = {"requests": 8, "failed": 0, "first_failure": None}
    found = failed_requests([whole, whole | {"failed": 1, "first_failure": "request 3: HTTP 500"}])
    assert found is not None and (found.reason, found.severity) == (Reason.REQUEST_FAILED, "rejected")
    assert found.sentence == "1 of 16 requests failed: request 3: HTTP 500"
    assert failed_requests([whole, {"requests": 8}]) is None, "older windows have no such column"


@pytest.mark.parametrize("reason", ["hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake"])
def test_a_card_that_protects_itself_is_suspect(reason: str) -> None:
    found = throttled([{"throttle_reasons": None}, {"throttle_reasons": [reason]}, {"throttle_reasons": []}])
    assert found is not None and (found.reason, found.severity) == (Reason.THROTTLED, "suspect")
    assert "1 of 3 windows" in found.sentence and reason in found.sentence


def test_a_card_at_its_power_limit_runs_as_it_is_meant_to() -> None:
    assert throttled([{"throttle_reasons": ["sw_power_cap", "hw_slowdown"]}, {}]) is None


@pytest.mark.parametrize(
    ("model", "changed", "technique", "k", "concurrency", "said"),
    [
        ("gemma-4-26b-a4b-shape", {"routing": None}, "ar", None, 4, "4 requests at a time of dummy weights share"),
        ("gemma-4-26b-a4b-shape", {"routing": None}, "ar", None, 1, None),
        ("gemma-4-26b-a4b-shape", {"routing": None}, "mtp", 4, 1, "weights, the 5 tokens of each, share"),
        ("diffusiongemma-26b-a4b-shape", {"routing": None}, "diffusion", None, 1, "the canvas of each, share"),
        ("gemma-4-26b-a4b-shape", {}, "ar", None, 4, None),
        ("gemma-4-26b-a4b-shape", {}, "mtp", 4, 4, None),
        ("gemma-4-31b-shape", {}, "mtp", 4, 16, None),  # every token reads all of it
        ("gemma-4-26b-a4b", {}, "mtp", 4, 16, None),
    ],
)
def test_tokens_of_a_step_of_dummy_weights_share_their_experts_unless_these_are_drawn(
    model: str, changed: dict[str, None], technique: str, k: int | None, concurrency: int, said: str | None
) -> None:
    found = same_experts(load_model(model).model_copy(update=changed), load_technique(technique), k, concurrency)
    assert (found is None) is (said is None)
    if found is not None and said is not None:
        assert found.reason is Reason.SAME_EXPERTS and said in found.sentence
