"""Each guard on figures that are true and on figures that can't be."""

from typing import Any

import pytest

from configs.cell import Serving
from configs.load import load_model, load_replay, load_technique
from tasks.guards import answers
from tasks.guards import tokens as guards
from tasks.guards.steadiness import same_experts, throttled
from tasks.meters import Counters, parse
from warehouse.ledger.verdicts import Finding, judge, worst

NOTHING = parse("")
AR, MTP, NGRAM, DFLASH, DYNAMIC = map(load_technique, ("ar", "mtp", "ngram", "dflash", "mtp-dynamic-k"))
DIFFUSION, ADAPTIVE = map(load_technique, ("diffusion", "mtp-adaptive"))
NEVER_PAUSES = DYNAMIC.model_copy(
    update={"speculative_config": {"num_speculative_tokens_per_batch_size": [[1, 4, 4], [5, 512, 2]]}}
)
REPLAY = load_replay("mtp-gb10-31b").at(4)


def counted(**values: Any) -> Counters:
    return NOTHING._replace(**values)


IDLE = counted(drafts=0, draft_tokens=0, accepted_tokens=0)
SECRET = counted(drafts=10, draft_tokens=40, accepted_tokens=25)
SHOWN = {"generation_tokens": 512.0, "prefix_hits": 0.0, "preemptions": 0.0}
DRAFTED = {"drafts": 0.0, "draft_tokens": 0.0, "accepted_tokens": 0.0}
CACHED = Serving(max_model_len=2048, prefix_cache=True)


def drafting(k: int, per_draft: float) -> Counters:
    return counted(drafts=1000, draft_tokens=1000 * k, accepted_tokens=1000 * per_draft)


def drafted(steps: int | None, accepted: int | None, tokens: int = 64) -> dict[str, int | None]:
    """A row of `requests` with K = 4."""
    drafts = None if steps is None else 4 * steps
    said = {"engine_draft_steps": steps, "engine_draft_tokens": drafts, "engine_accepted_tokens": accepted}
    return {"completion_tokens": tokens, **said}


def added_up(*rows: dict[str, int | None]) -> Finding | None:
    steps, accepted = (sum(row[f"engine_{name}"] or 0 for row in rows) for name in ("draft_steps", "accepted_tokens"))
    return guards.acceptance_mismatch(4, rows, counted(drafts=steps, draft_tokens=4 * steps, accepted_tokens=accepted))


def apart(row: dict[str, int | None], drafts: int, draft_tokens: int, accepted_tokens: int) -> Finding | None:
    engine = counted(drafts=drafts, draft_tokens=draft_tokens, accepted_tokens=accepted_tokens)
    return guards.acceptance_mismatch(4, [row], engine)


def experts(model: str, technique: str, k: int | None, concurrency: int, **changed: None) -> Finding | None:
    return same_experts(load_model(model).model_copy(update=changed), load_technique(technique), k, concurrency)


def read(tokens: int, counted_tokens: int | None = 1000) -> Finding | None:
    """Two prompts of a thousand tokens, of which the engine read one at this length."""
    row = {"prompt_tokens": 1000, "counted_prompt_tokens": counted_tokens}
    return guards.cut_prompts([row, row | {"prompt_tokens": tokens}])


def ids(*counts: int | None) -> Finding | None:
    return guards.ids_mismatch([{"completion_tokens": 64, "token_id_count": count} for count in counts])


def bodies(n: int, blank: int) -> list[str]:
    return ["a"] * (n - blank) + [" \n"] * blank


def ends(n: int, cut: int) -> list[str]:
    return ["stop"] * (n - cut) + ["length"] * cut


WHOLE = {"requests": 8, "failed": 0, "first_failure": None}

SOUND: dict[str, Finding | None] = {
    "nothing should draft": guards.dead_draft(AR, NOTHING),
    "may pause in large batches": guards.dead_draft(DYNAMIC, IDLE),
    "living MTP": guards.dead_draft(DFLASH, drafting(4, 1.5)),
    "living DFlash out of its depth": guards.dead_draft(DFLASH, drafting(15, 0.28)),
    "living draft of one token": guards.dead_draft(DFLASH, drafting(1, 0.6)),
    "MTP in range": guards.acceptance_out_of_range(4, drafting(4, 1.5)),
    "DFlash in range": guards.acceptance_out_of_range(15, drafting(15, 0.28)),
    "one token in range": guards.acceptance_out_of_range(1, drafting(1, 0.6)),
    "25 of 40": guards.acceptance_out_of_range(4, SECRET),
    "nothing counted": guards.acceptance_out_of_range(4, NOTHING),
    "falling positions": guards.acceptance_out_of_range(3, counted(accepted_by_position=(9.0, 4.0, 4.0))),
    "nothing replayed": guards.replay_missed(MTP, None, counted(drafts=480, accepted_tokens=1)),
    "AR without drafts": guards.baseline_drafts(AR, NOTHING),
    "MTP with drafts": guards.baseline_drafts(MTP, SECRET),
    "AR's counters": guards.counters_vanished(AR, counted(**SHOWN)),
    "MTP's counters": guards.counters_vanished(MTP, counted(**SHOWN, **DRAFTED)),
    "diffusion's counters": guards.counters_vanished(DIFFUSION, counted(**SHOWN, denoising_steps=9.0)),
    "an engine without counters": guards.counters_vanished(AR, NOTHING),
    "asked length": guards.short_output(256, [256, 256]),
    "both count 512": guards.token_mismatch(512, counted(generation_tokens=512)),
    "no prefix hits": guards.prefix_cache_hit(counted(prefix_hits=0), CACHED),
    "one blank of 198": answers.blank_output(bodies(198, 1)),
    "one cut off of 198": answers.truncated(ends(198, 1)),
    "three cut off of 198": answers.truncated(ends(198, 3)),
    "three of five smoke items": answers.at_chance(3, 5, 0.25, answers.SMOKE_CHANCE_P),
    "five of five smoke items": answers.at_chance(5, 5, 0.25, answers.SMOKE_CHANCE_P),
    "an evaluation far above chance": answers.at_chance(30, 48, 0.25, answers.EVAL_CHANCE_P),
    "drafts that add up": added_up(*[drafted(15, 46)] * 4),
    "drafts that are all accepted": added_up(*[drafted(20, 44)] * 2),
    "no drafts": added_up(drafted(0, 0)),
    "accepted behind the end": added_up(drafted(15, 52)),
    "drafts that one request doesn't tell": added_up(drafted(15, 46), drafted(None, None)),
    "drafts of no request": added_up(),
    "windows without a failure, and older ones": guards.failed_requests([WHOLE, {"requests": 8}]),
    "at the power limit": throttled([{"throttle_reasons": ["sw_power_cap", "hw_slowdown"]}, {}]),
    "one request of dummy AR": experts("gemma-4-26b-a4b-shape", "ar", None, 1, routing=None),
    "experts drawn": experts("gemma-4-26b-a4b-shape", "ar", None, 4),
    "experts drawn for drafts": experts("gemma-4-26b-a4b-shape", "mtp", 4, 4),
    "every token reads all of it": experts("gemma-4-31b-shape", "mtp", 4, 16),
    "real weights": experts("gemma-4-26b-a4b", "mtp", 4, 16),
    "as many ids as tokens": ids(64, 64),
    "nobody asked for ids": ids(None, None),
    "prompts read whole": read(1010),
    "prompts that nobody could count": read(512, None),
    "prompts again in half of their time": guards.secretly_cached([(120.0, 60.0)] * guards.FEWEST_SEEN),
    "prompts again that waited": guards.secretly_cached([(120.0, 400.0)] * guards.FEWEST_SEEN),
    "few prompts again": guards.secretly_cached([(120.0, 8.0)] * (guards.FEWEST_SEEN - 1)),
    "most met a compiler, or a busy machine": guards.secretly_cached(
        [(380.0, 37.0)] * (guards.FEWEST_SEEN - 1) + [(38.0, 37.0)]
    ),
}


@pytest.mark.parametrize("figures", SOUND)
def test_figures_that_can_be_pass(figures: str) -> None:
    assert SOUND[figures] is None


FOUND: dict[str, dict[str, Finding | None]] = {
    "dead_draft rejected": {
        "(nothing accepted)": guards.dead_draft(MTP, drafting(4, 0)),
        "(next to nothing accepted)": guards.dead_draft(MTP, drafting(4, 0.03)),
        "(no counter of drafts)": guards.dead_draft(MTP, NOTHING),
        "(pauses and accepts nothing)": guards.dead_draft(DYNAMIC, counted(drafts=100, accepted_tokens=0)),
        "(may not pause)": guards.dead_draft(NEVER_PAUSES, IDLE),
        **{f"(guesses {k} tokens)": guards.dead_draft(DFLASH, drafting(k, 0.011)) for k in (1, 4, 15)},
    },
    "dead_draft suspect": {"(an idle n-gram)": guards.dead_draft(NGRAM, IDLE)},
    "acceptance_out_of_range rejected": {
        "(above K a step)": guards.acceptance_out_of_range(2, counted(drafts=10, accepted_tokens=25)),
        "(above drafted)": guards.acceptance_out_of_range(4, counted(drafts=10, draft_tokens=12, accepted_tokens=25)),
        "(rising positions)": guards.acceptance_out_of_range(3, counted(accepted_by_position=(4.0, 9.0, 0.0))),
    },
    "baseline_drafts rejected": {"(an AR engine that drafts)": guards.baseline_drafts(AR, SECRET)},
    "counters_vanished suspect": {
        "vllm:prefix_cache_hits_total, vllm:num_preemptions_total": guards.counters_vanished(
            AR, counted(generation_tokens=512.0)
        ),
        "vllm:spec_decode_num_drafts_total": guards.counters_vanished(MTP, counted(**SHOWN)),
        "vllm:diffusion_num_denoising_steps_total": guards.counters_vanished(DIFFUSION, counted(**SHOWN)),
    },
    "short_output rejected": {"1 of 2": guards.short_output(256, [256, 250])},
    "token_mismatch rejected": {
        "(another count)": guards.token_mismatch(512, counted(generation_tokens=1024)),
        "32 ids where usage says 64 tokens": ids(64, 32),
    },
    "no_engine_counters suspect": {"(no count)": guards.token_mismatch(512, NOTHING)},
    "prefix_cache_hit rejected": {
        "(hits)": guards.prefix_cache_hit(counted(prefix_hits=16), Serving(max_model_len=2048)),
        "serving.prefix_cache is true": guards.prefix_cache_hit(counted(prefix_hits=16), CACHED),
    },
    "prefix_cache_hit suspect": {
        "(again in a quarter)": guards.secretly_cached([(120.0, 30.0)] * guards.FEWEST_SEEN),
        "(again at once)": guards.secretly_cached([(120.0, 8.0)] * guards.FEWEST_SEEN),
    },
    "blank_output suspect": {f"{n} of 198": answers.blank_output(bodies(198, n)) for n in (3, 5)},
    "blank_output rejected": {
        "20 of 198": answers.blank_output(bodies(198, 20)),
        "1 of 20 answers": answers.blank_output(bodies(20, 1), answers.NONE_ALLOWED),
    },
    "truncated suspect": {
        "5 of 198": answers.truncated(ends(198, 5)),
        "1 of 3 answers": answers.truncated(ends(3, 1), answers.ANY_SUSPECT),
    },
    "truncated rejected": {"40 of 198": answers.truncated(ends(198, 40))},
    "at_chance rejected": {
        "2 of 5 right": answers.at_chance(2, 5, 0.25, answers.SMOKE_CHANCE_P),
        "0 of 5 right": answers.at_chance(0, 5, 0.25, answers.SMOKE_CHANCE_P),
        "14 of 48 right": answers.at_chance(14, 48, 0.25, answers.EVAL_CHANCE_P),
    },
    "acceptance_mismatch rejected": {
        "15 draft steps": apart(drafted(15, 46), 16, 60, 46),
        "46 accepted tokens": apart(drafted(15, 46), 15, 60, 45),
        "60 drafted tokens": apart(drafted(15, 46), 15, 64, 46),
        "a request of 64 tokens": apart(drafted(30, 60), 30, 120, 60),
    },
    "request_failed rejected": {
        "1 of 16 requests failed: request 3: HTTP 500": guards.failed_requests(
            [WHOLE, WHOLE | {"failed": 1, "first_failure": "request 3: HTTP 500"}]
        )
    },
    "throttled suspect": {
        reason: throttled([{"throttle_reasons": None}, {"throttle_reasons": [reason]}, {"throttle_reasons": []}])
        for reason in ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake")
    },
    "same_experts suspect": {
        "4 requests at a time of dummy weights share": experts("gemma-4-26b-a4b-shape", "ar", None, 4, routing=None),
        "weights, the 5 tokens of each, share": experts("gemma-4-26b-a4b-shape", "mtp", 4, 1, routing=None),
        "the canvas of each, share": experts("diffusiongemma-26b-a4b-shape", "diffusion", None, 1, routing=None),
    },
    "prompt_length suspect": {f"{tokens} tokens read of 1000": read(tokens) for tokens in (1011, 512, 2000)},
}
"""By reason and severity, each with words of its sentence, or with a name in brackets."""


@pytest.mark.parametrize(("said", "words"), [(said, words) for said, found in FOUND.items() for words in found])
def test_figures_that_can_not_be_are_found(said: str, words: str) -> None:
    found = FOUND[said][words]
    assert found is not None and f"{found.reason.value} {found.severity}" == said
    assert words.startswith("(") or words in found.sentence


@pytest.mark.parametrize(("per_draft", "fires"), [(2.1, False), (2.3, False), (1.6, True), (3.0, True), (0.0, True)])
def test_a_replay_accepts_what_its_table_says(per_draft: float, fires: bool) -> None:
    found = guards.replay_missed(MTP, REPLAY, counted(drafts=480, accepted_tokens=480 * per_draft))
    assert (found and f"{found.reason.value} {found.severity}") == ("replay_missed rejected" if fires else None)


@pytest.mark.parametrize(
    ("per_batch", "accepted", "fires"),
    [({2: 4800}, 1.0, False), ({1: 2400, 4: 2400}, 1.0, False), ({2: 4800}, 1.3, True), ({2: 4800}, 0.7, True)],
    ids=["2 of 4 in a batch of 8", "1 or 4, by the text", "too many", "too few"],
)
def test_a_replay_that_drafts_less_than_k_is_found(per_batch: dict[int, int], accepted: float, fires: bool) -> None:
    """As `mtp-dynamic-k` and `mtp-adaptive` do; one with a K of its own may not."""
    told = accepted * sum(steps * sum(REPLAY.rates[:number]) for number, steps in per_batch.items())
    tokens = sum(each * steps for each, steps in per_batch.items())
    counts = counted(drafts=4800, draft_tokens=tokens, accepted_tokens=told)
    for technique, is_missed in ((DYNAMIC, fires), (ADAPTIVE, fires), (MTP, True)):
        assert (guards.replay_missed(technique, REPLAY, counts) is not None) == is_missed, technique.name


def test_one_cache_under_two_names_is_counted_once_and_positions_begin_at_zero() -> None:
    older, both = 'vllm:gpu_prefix_cache_hits_total{engine="0"} 7\n', 'vllm:prefix_cache_hits_total{engine="0"} 9\n'
    assert parse(older).prefix_hits == 7
    assert parse(older + both).prefix_hits == 9
    pages = [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{at}"}} 3\n' for at in (0, 1)]
    one, two = parse(pages[0]), parse(pages[0] + pages[1])
    assert two.since(one).accepted_by_position == (0.0, 3.0)
    assert one.since(two).accepted_by_position is None


def test_the_worst_finding_is_the_verdict() -> None:
    assert worst([]) == "ok"
    assert worst(["suspect", "rejected"]) == "rejected"
    assert judge("c", "fixed", [None, None]).verdict == "ok"
    assert answers.chance_p(0, 5, 0.25) == pytest.approx(1.0)
