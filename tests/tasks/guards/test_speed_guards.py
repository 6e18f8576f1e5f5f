"""Rates against memory, and streams against fixed windows: published figures pass, planted ones don't."""

from __future__ import annotations

import pytest

from configs.cell import Cell
from configs.engine import Serving
from configs.load import load_engine, load_gpu, load_model, load_precision, load_technique
from tasks.guards.machine import other_gpu
from tasks.guards.speed import (
    ceiling_tok_s,
    floor_tok_s,
    impossible_prefill,
    impossible_speed,
    late_first_token,
    step_bytes,
    stream_mismatch,
    streamed_in_lumps,
    tokens_per_step,
    too_slow,
)
from tasks.meters import parse
from warehouse.verdicts import Reason

SERVING = Serving(max_model_len=16384)


def cell_of(
    model: str = "gemma-4-31b", precision: str = "fp8", technique: str = "ar", k: int | None = None, args: str = ""
) -> Cell:
    engine = load_engine("vllm")
    return Cell(
        model=load_model(model), precision=load_precision(precision), technique=load_technique(technique), k=k,
        engine=engine.model_copy(update={"args": (*engine.args, *args.split())}), serving=SERVING,
    )  # fmt: skip


def bounds(cell: Cell, gpu: str, prompt_tokens: int, concurrency: int = 1) -> tuple[float | None, float | None]:
    """The slowest that is healthy and the fastest that is possible, with answers of 512 tokens."""
    read = step_bytes(cell, prompt_tokens, 512, concurrency)
    return floor_tok_s(cell, load_gpu(gpu), read), ceiling_tok_s(cell, load_gpu(gpu), read, 1.0, concurrency)


@pytest.mark.parametrize(
    ("gpu", "model", "precision", "short", "long"),
    [  # tok/s behind a short prompt and behind one of 8000 tokens; docs/sources.md, and one H200 on 2026-11-22
        ("h100", "gemma-4-12b", "fp8", 117, 110),
        ("h100", "gemma-4-26b-a4b", "fp8", 226, 212),
        ("h100", "gemma-4-31b", "fp8", 68, 62),
        ("h100", "qwen3.6-27b", "fp8", 79, 74),
        ("h100", "qwen3.6-35b-a3b", "fp8", 217, 205),
        ("h100", "gemma-4-31b", "bf16", 40.3, None),
        ("h100", "gemma-4-26b-a4b", "bf16", 177.1, None),
        ("h200", "gemma-4-31b", "fp8", 88.1, 64.5),
        ("h200", "gemma-4-26b-a4b", "fp8", 268, 189),
        ("h200", "gemma-4-12b", "fp8", 181.7, 123.9),
        ("h200", "tiny-gemma4", "bf16", 549, None),
        ("gb10", "gemma-4-31b", "fp8", 6.56, None),
        ("gb10", "gemma-4-26b-a4b", "fp8", 39.5, None),
        ("gb10", "gemma-4-31b", "nvfp4", 11, None),
    ],
)
def test_speeds_that_were_measured_on_healthy_engines_pass(
    gpu: str, model: str, precision: str, short: float, long: float | None
) -> None:
    for tok_s, prompt_tokens in ((short, 64), (long, 8000)):
        if tok_s is not None:
            floor, ceiling = bounds(cell_of(model, precision), gpu, prompt_tokens)
            assert too_slow(tok_s, floor) is None
            assert impossible_speed(tok_s, ceiling) is None


@pytest.mark.parametrize("precision", ["fp8", "bf16"])
def test_a_model_of_31_billion_at_8_8_tokens_per_second_on_an_h100_is_too_slow(precision: str) -> None:
    found = too_slow(8.8, bounds(cell_of(precision=precision), "h100", 64)[0])
    assert found is not None and (found.reason, found.severity) == ("too_slow", "suspect")


@pytest.mark.parametrize(
    "args",
    [
        "--enforce-eager",
        "--cpu-offload-gb 20",
        "-O0",
        "-O 0",
        '--compilation-config {"cudagraph_mode":"NONE"}',
        "-O.cudagraph_mode=none",
    ],
)
def test_an_engine_slowed_by_its_own_arguments_is_not_called_too_slow(args: str) -> None:
    assert too_slow(8.8, bounds(cell_of(args=args), "h100", 64)[0]) is None


@pytest.mark.parametrize(
    ("model", "tok_s", "fires"),
    [
        ("gemma-4-31b", 8.8, True),
        ("gemma-4-31b", 12.0, False),
        ("gemma-4-12b", 9.0, True),
        ("gemma-4-12b", 15.0, False),
    ],
)
def test_generate_launches_every_step_by_hand_which_excuses_60_ms_and_no_more(
    model: str, tok_s: float, fires: bool
) -> None:
    generate = cell_of(model, "bf16").model_copy(update={"engine": load_engine("transformers")})
    assert (too_slow(tok_s, bounds(generate, "h100", 64)[0]) is not None) is fires
    if not fires:
        assert too_slow(tok_s, bounds(cell_of(model, "bf16"), "h100", 64)[0]) is not None, "of vLLM it would be"


@pytest.mark.parametrize(
    ("args", "cards"),
    [
        ("", 1),
        ("--tensor-parallel-size 2", 2),
        ("--tensor-parallel-size=2", 2),
        ("--tensor_parallel_size=2", 2),
        ("-tp 2", 2),
        ("-tp 4 -tp 2", 2),
        ("-tp 2 --pipeline-parallel-size 2", 4),
        ("-dp=4", 4),
    ],
)
def test_the_cards_of_a_cell_are_those_of_its_engines_arguments(args: str, cards: int) -> None:
    assert cell_of(args=args).cards == cards


def test_two_cards_have_twice_the_memory_bandwidth() -> None:
    """31B in fp8 at 160 tok/s: honest on two H100, impossible on one."""
    assert impossible_speed(160, bounds(cell_of(), "h100", 64)[1]) is not None
    assert impossible_speed(160, bounds(cell_of(args="--tensor-parallel-size 2"), "h100", 64)[1]) is None


def test_the_cache_of_long_contexts_is_read_too() -> None:
    """For 16 answers of 26B-A4B behind 8000 tokens each step reads 2.7 GB of cache besides 3.8 GB of weights."""
    without = ceiling_tok_s(cell_of("gemma-4-26b-a4b"), load_gpu("h100"), 3.8e9, 1.0, 16)
    assert impossible_speed(10_000, without) is None
    assert impossible_speed(10_000, bounds(cell_of("gemma-4-26b-a4b"), "h100", 8000, 16)[1]) is not None
    assert impossible_speed(4604, bounds(cell_of("gemma-4-26b-a4b"), "h200", 8000, 16)[1]) is None


def test_what_waits_for_a_slot_shares_no_step() -> None:
    """At 16 in flight and 4 slots a step of the 31B makes 4 tokens, not 16."""
    held = cell_of().model_copy(update={"serving": SERVING.model_copy(update={"max_num_seqs": 4})})
    assert bounds(held, "h100", 64, 16) == bounds(held, "h100", 64, 4) == bounds(cell_of(), "h100", 64, 4)


def test_a_cache_in_eight_bits_is_half_as_large() -> None:
    wide, narrow = (step_bytes(cell_of(args=args), 8000, 512, 16) for args in ("", "--kv-cache-dtype fp8_e5m2"))
    weights = step_bytes(cell_of(), 0, 1, 1)
    assert narrow - weights == pytest.approx((wide - weights) / 2)


def test_steps_without_a_draft_count() -> None:
    """10 drafts with 25 accepted of 512 tokens are 1.05 tokens a step, though 3.5 in the steps that had a draft."""
    counted = parse("")._replace(drafts=10, draft_tokens=40, accepted_tokens=25)
    assert tokens_per_step(cell_of(technique="ngram", k=4), 512, counted) == pytest.approx(512 / 487)
    assert tokens_per_step(cell_of(), 512, counted) == 1.0, "AR commits one token a step whatever its engine counts"
    assert tokens_per_step(cell_of(technique="mtp", k=4), 512, parse("")) is None


def test_no_step_commits_more_than_k_plus_one() -> None:
    """What was accepted behind the last token of a short answer is counted, too."""
    counted = parse("")._replace(drafts=1, draft_tokens=15, accepted_tokens=15)
    assert tokens_per_step(cell_of(technique="dflash", k=15), 8, counted) == 8
    assert tokens_per_step(cell_of(technique="mtp", k=4), 64, counted._replace(accepted_tokens=64)) == 5


def test_a_denoising_step_bounds_a_diffusion_cell() -> None:
    cell = cell_of("diffusiongemma-26b-a4b", technique="diffusion")
    counted = parse("")._replace(denoising_steps=34)
    assert tokens_per_step(cell, 512, counted) == pytest.approx(512 / 34)
    ceiling = ceiling_tok_s(cell, load_gpu("h200"), step_bytes(cell, 64, 512, 1), 512 / 34, 1)
    assert impossible_speed(1267, ceiling) is None
    assert impossible_speed(50_000, ceiling) is not None


QUIET = [99.0, 100.0, 101.0, 100.0, 100.0]


@pytest.mark.parametrize("ratio", [0.5, 2.0, 0.66, 1.5])
def test_a_tpot_wrong_by_a_factor_of_two_is_rejected_where_repeats_agree(ratio: float) -> None:
    found = stream_mismatch([98 * ratio, 100 * ratio, 101 * ratio], QUIET)
    assert found is not None and (found.reason, found.severity) == ("stream_mismatch", "rejected")


@pytest.mark.parametrize(
    ("tok_s", "ratio"), [(88, 0.94), (268, 1.06), (549, 0.69), (549, 1.24)], ids=["31B", "26B", "tiny", "tiny fast"]
)
def test_streams_of_a_real_card_match(tok_s: float, ratio: float) -> None:
    steady = [0.99 * tok_s, tok_s, 1.01 * tok_s]
    assert stream_mismatch([rate * ratio for rate in steady], steady) is None


def test_scattered_repeats_widen_the_bounds_but_never_beyond_a_factor_of_two() -> None:
    scattered = [60.0, 100.0, 160.0]
    assert stream_mismatch([150.0, 170.0, 160.0], QUIET) is not None
    assert stream_mismatch([150.0, 170.0, 160.0], scattered) is None
    assert stream_mismatch([210.0, 220.0, 230.0], scattered) is not None
    assert stream_mismatch([160.0], [100.0]) is None, "one of each carries no more than that"
    assert stream_mismatch([210.0], [100.0]) is not None


def test_a_stream_in_one_chunk_is_a_burst() -> None:
    found = stream_mismatch([100.0, None, 100.0], QUIET)
    assert found is not None and found.reason == "stream_burst"


@pytest.mark.parametrize(
    ("gpu", "name", "caught"),
    [
        ("h100", "NVIDIA H100 80GB HBM3", False),
        ("h100", "NVIDIA H100 PCIe", True),
        ("h100", "AMD EPYC 9654 96-Core Processor", True),
        ("h100", None, False),
        ("a100", "NVIDIA A100-PCIE-40GB", False),
        ("a100", "NVIDIA A100-SXM4-80GB", True),
        ("h200", "NVIDIA H200", False),
        ("cpu", "AMD EPYC 9654 96-Core Processor", False),
    ],
)
def test_the_card_must_be_the_one_that_was_planned(gpu: str, name: str | None, caught: bool) -> None:
    found = other_gpu(load_gpu(gpu), name)
    assert (found is not None) is caught
    assert found is None or (found.reason, found.severity) == ("other_gpu", "suspect")


def test_streams_that_bring_half_of_their_tokens_at_once_are_no_streams() -> None:
    steady, lumps, short = (100, 5), (100, 50), (9, 5)
    assert streamed_in_lumps([steady] * 9 + [lumps], 5) is None, "a client may have slept once"
    assert streamed_in_lumps([steady] * 4 + [lumps], 5) is None, "of fewer streams, too"
    assert streamed_in_lumps([steady] * 3 + [lumps], 5) is not None
    found = streamed_in_lumps([steady] * 8 + [lumps] * 2, 5)
    assert found is not None and found.reason == "stream_burst" and "2 of 10 streams" in found.sentence
    assert streamed_in_lumps([short] * 10, 5) is None, "two steps of a draft are an answer"


@pytest.mark.parametrize(
    ("model", "precision", "gpu", "tok_s", "caught"),
    [
        ("gemma-4-31b", "bf16", "h100", 12_000, False),  # three quarters of what it multiplies in 16 bits
        ("gemma-4-31b", "nvfp4", "b200", 120_000, False),
        ("gemma-4-31b", "bf16", "h100", 100_000, True),  # three of four prompts from a cache
        ("gemma-4-31b", "autoround-int4", "gb10", 1e9, False),  # nobody says what it can compute
    ],
)
def test_a_prompt_is_read_no_faster_than_the_card_multiplies(
    model: str, precision: str, gpu: str, tok_s: float, caught: bool
) -> None:
    found = impossible_prefill(cell_of(model, precision), load_gpu(gpu), tok_s)
    assert (found is not None) == caught
    assert found is None or (found.reason, found.severity) == (Reason.IMPOSSIBLE_SPEED, "rejected")


def test_two_steps_in_one_chunk_are_a_busy_machine_unless_all_answers_come_so() -> None:
    """K = 4: an answer of 16 tokens is four steps, and two of them that were read together are half of it."""
    steady, joined = (16, 5), (16, 8)
    assert streamed_in_lumps([steady] * 5 + [joined] * 5, 5) is None
    found = streamed_in_lumps([steady] * 4 + [joined] * 6, 5)
    assert found is not None and found.reason == "stream_burst"
    assert "6 of 10 streams of up to 20 tokens" in found.sentence
    assert streamed_in_lumps([(16, 8)] * 2 + [(16, 1)] * 8, 1) is not None, "without a draft that is eight steps"


@pytest.mark.parametrize("where", ["engine", "technique"])
def test_arguments_that_a_technique_adds_count_as_the_engines_own_do(where: str) -> None:
    plain = cell_of()
    given = ("-tp", "2", "--kv-cache-dtype", "fp8_e5m2", "--enforce-eager")
    if where == "engine":
        cell = plain.model_copy(update={"engine": plain.engine.model_copy(update={"args": given})})
    else:
        cell = plain.model_copy(update={"technique": plain.technique.model_copy(update={"engine_args": given})})
    assert (cell.cards, cell.tensor_parallel) == (2, 2)
    assert cell.kv_bytes_per_token == plain.kv_bytes_per_token / 2
    assert too_slow(8.8, bounds(cell, "h100", 64)[0]) is None


def test_of_an_argument_given_twice_the_technique_s_counts_as_it_stands_behind() -> None:
    cell = cell_of(args="--kv-cache-dtype fp8")
    technique = cell.technique.model_copy(update={"engine_args": ("--kv-cache-dtype=bfloat16",)})
    assert cell.model_copy(update={"technique": technique}).kv_bytes_per_token == 2 * cell.kv_bytes_per_token


@pytest.mark.parametrize(("technique", "k"), [("ar", None), ("mtp", 4), ("ngram", 4)])
def test_a_prefill_s_one_token_must_be_seen_by_itself(technique: str, k: int | None) -> None:
    cell = cell_of(technique=technique, k=k)
    seen, joined, hidden = ({"first_chunk_tokens": tokens} for tokens in (1, 2, 4))
    assert late_first_token(cell, [seen] * 8) is None
    assert late_first_token(cell, [seen, seen, joined, joined]) is None, "a busy front end joins some steps"
    assert late_first_token(cell, [joined, joined]) is None, "of two streams perhaps both"
    assert late_first_token(cell, [{"first_chunk_tokens": None}, {}]) is None, "not streamed, or by an older client"
    found = late_first_token(cell, [hidden, hidden, seen])
    assert found is not None and (found.reason, found.severity) == (Reason.LATE_FIRST_TOKEN, "suspect")
    assert "2 of 3 streams had several tokens (median 4)" in found.sentence


def test_where_a_first_step_makes_several_tokens_none_is_late() -> None:
    """A canvas comes whole, and generate() verifies a draft with the prompt."""
    drafting = cell_of(technique="mtp", k=4)
    generate = drafting.model_copy(update={"engine": load_engine("transformers")})
    for cell in (cell_of("diffusiongemma-26b-a4b", technique="diffusion"), generate):
        assert late_first_token(cell, [{"first_chunk_tokens": 4}] * 8) is None
