"""Rates against memory, streams against fixed windows, the client's clock against the engine's."""

from typing import Any

import pytest

from configs.cell import Cell, Serving
from configs.load import load_engine, load_gpu, load_model, load_precision, load_technique
from tasks.guards import speed
from tasks.guards.steadiness import other_gpu
from tasks.meters import parse
from warehouse.ledger.verdicts import Finding

SERVING = Serving(max_model_len=16384)
CPU = "AMD EPYC 9654 96-Core Processor"


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
    card, read = load_gpu(gpu), speed.step_bytes(cell, prompt_tokens, 512, concurrency)
    return speed.floor_tok_s(cell, card, read), speed.ceiling_tok_s(cell, card, read, 1.0, concurrency)


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
def test_speeds_of_healthy_engines_pass(gpu: str, model: str, precision: str, short: float, long: float | None) -> None:
    for tok_s, prompt_tokens in ((short, 64), (long, 8000)):
        if tok_s is not None:
            floor, ceiling = bounds(cell_of(model, precision), gpu, prompt_tokens)
            assert speed.too_slow(tok_s, floor) is None
            assert speed.impossible_speed(tok_s, ceiling) is None


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


def test_what_waits_for_a_slot_shares_no_step_and_a_cache_in_eight_bits_is_half_as_large() -> None:
    """At 16 in flight and 4 slots a step of the 31B makes 4 tokens, not 16."""
    held = cell_of().model_copy(update={"serving": SERVING.model_copy(update={"max_num_seqs": 4})})
    assert bounds(held, "h100", 64, 16) == bounds(held, "h100", 64, 4) == bounds(cell_of(), "h100", 64, 4)
    wide, narrow = (speed.step_bytes(cell_of(args=args), 8000, 512, 16) for args in ("", "--kv-cache-dtype fp8_e5m2"))
    weights = speed.step_bytes(cell_of(), 0, 1, 1)
    assert narrow - weights == pytest.approx((wide - weights) / 2)


def test_steps_without_a_draft_count() -> None:
    """10 drafts with 25 accepted of 512 tokens are 1.05 tokens a step, though 3.5 in the steps that had a draft."""
    counted = parse("")._replace(drafts=10, draft_tokens=40, accepted_tokens=25)
    assert speed.tokens_per_step(cell_of(technique="ngram", k=4), 512, counted) == pytest.approx(512 / 487)
    assert speed.tokens_per_step(cell_of(), 512, counted) == 1.0, "AR commits one, whatever its engine counts"
    assert speed.tokens_per_step(cell_of(technique="mtp", k=4), 512, parse("")) is None
    # what was accepted behind the last token of a short answer is counted, too: no step commits more than K + 1
    counted = parse("")._replace(drafts=1, draft_tokens=15, accepted_tokens=15)
    assert speed.tokens_per_step(cell_of(technique="dflash", k=15), 8, counted) == 8
    assert speed.tokens_per_step(cell_of(technique="mtp", k=4), 64, counted._replace(accepted_tokens=64)) == 5


def test_a_denoising_step_bounds_a_diffusion_cell() -> None:
    cell = cell_of("diffusiongemma-26b-a4b", technique="diffusion")
    counted = parse("")._replace(denoising_steps=34)
    assert speed.tokens_per_step(cell, 512, counted) == pytest.approx(512 / 34)
    ceiling = speed.ceiling_tok_s(cell, load_gpu("h200"), speed.step_bytes(cell, 64, 512, 1), 512 / 34, 1)
    assert speed.impossible_speed(1267, ceiling) is None
    assert speed.impossible_speed(50_000, ceiling) is not None


@pytest.mark.parametrize("where", ["engine", "technique"])
def test_arguments_that_a_technique_adds_count_as_the_engines_own_do(where: str) -> None:
    plain, given = cell_of(), ("-tp", "2", "--kv-cache-dtype", "fp8_e5m2", "--enforce-eager")
    field = "args" if where == "engine" else "engine_args"
    cell = plain.model_copy(update={where: getattr(plain, where).model_copy(update={field: given})})
    assert (cell.cards, cell.tensor_parallel) == (2, 2)
    assert cell.kv_bytes_per_token == plain.kv_bytes_per_token / 2
    assert speed.too_slow(8.8, bounds(cell, "h100", 64)[0]) is None


def test_of_an_argument_given_twice_the_technique_s_counts_as_it_stands_behind() -> None:
    cell = cell_of(args="--kv-cache-dtype fp8")
    technique = cell.technique.model_copy(update={"engine_args": ("--kv-cache-dtype=bfloat16",)})
    assert cell.model_copy(update={"technique": technique}).kv_bytes_per_token == 2 * cell.kv_bytes_per_token


@pytest.mark.parametrize("args", ["", "--kv-cache-dtype fp8", "--kv-cache-dtype fp8_ds_mla"])
@pytest.mark.parametrize(("prompt_tokens", "concurrency"), [(512, 1), (32768, 64), (131072, 32)])
def test_a_sparse_attention_is_not_held_to_tokens_that_it_does_not_read(
    args: str, prompt_tokens: int, concurrency: int
) -> None:
    """Of 61 layers a token reads 656 bytes of up to 2048 others, and 132 of each one's index key (vLLM on Hopper)."""
    cell = cell_of("deepseek-v3.2", args=f"-tp 8 {args}")
    cache = concurrency * 61 * (min(prompt_tokens, 2048) * 656 + prompt_tokens * 132)
    true = cell.model.active_params_b * 1e9 + cache
    cell = cell.model_copy(update={"technique": load_technique("mtp-embedded")})  # only the prompt is sure to be there
    assert 0.9 * true < speed.step_bytes(cell, prompt_tokens, 512, concurrency) <= true


def test_while_an_answer_grows_beyond_what_is_read_each_step_counts_by_its_own() -> None:
    cell = cell_of("deepseek-v3.2")
    each = [cell.kv_bytes_read(1000 + written) for written in range(3000)]
    read = speed.step_bytes(cell, 1000, 3000, 1) - cell.model.active_params_b * 1e9
    assert 0.8 * sum(each) / 3000 < read <= sum(each) / 3000


@pytest.mark.parametrize(
    ("dtype", "value_bytes"),
    [
        ("bfloat16", 2), ("fp8_e4m3", 1), ("int8_per_token_head", 516 / 512), ("int4_per_token_head", 260 / 512),
        ("nvfp4", 0.5625), ("turboquant_k8v4", (512 + 256 + 4) / 1024), ("turboquant_3bit_nc", (384 + 6) / 1024),
        ("a-newer-engines-8bit", 0),
    ],
)  # fmt: skip
def test_a_cache_s_number_format_is_looked_up_and_an_unknown_one_lowers_no_ceiling(
    dtype: str, value_bytes: float
) -> None:
    cell = cell_of(args=f"--kv-cache-dtype {dtype}")
    assert cell.kv_bytes_per_token == pytest.approx(10 * 4 * 2 * 512 * value_bytes)


def request(ttft_ms: float | None, wall_ms: float, queue: float = 0.1, made: float = 9.0, rest: float = 650.0) -> Any:
    return {
        "ttft_ms": ttft_ms, "wall_s": wall_ms / 1000, "engine_queue_ms": queue, "engine_ttft_ms": made,
        "engine_generation_ms": rest,
    }  # fmt: skip


CALM = request(15.0, 670.0)  # a stream of the tiny family on two cores
BUSY = request(757.0, 870.0, queue=0.2, made=8.8, rest=110.0)  # the worst of 88, at eight a second on two busy cores
HELD = request(6509.1, 13000.0, rest=6450.0)  # an engine that makes an answer, and then plays it
FOUR_DEEP = request(None, 4030.0, made=400.0, rest=3500.0)  # not streamed, several at a time

STEADY, LUMPS, SHORT, JOINED = (100, 5), (100, 50), (9, 5), (16, 8)
"""Streams with K = 4: tokens, and those of the largest chunk. `JOINED` are four steps, of which two came together."""


def slow(tok_s: float, *, gpu: str = "h100", generate: bool = False, **cell: str) -> Finding | None:
    served = cell_of(**cell)  # type: ignore[arg-type]
    served = served.model_copy(update={"engine": load_engine("transformers")}) if generate else served
    return speed.too_slow(tok_s, bounds(served, gpu, 64)[0])


def fast(tok_s: float, gpu: str, prompt_tokens: int = 64, concurrency: int = 1, **cell: str) -> Finding | None:
    return speed.impossible_speed(tok_s, bounds(cell_of(**cell), gpu, prompt_tokens, concurrency)[1])  # type: ignore[arg-type]


def streams(ratio: float, tok_s: float = 100.0) -> Finding | None:
    """Streams of one machine at this share of the rate of its fixed windows."""
    fixed = [0.99 * tok_s, tok_s, tok_s, tok_s, 1.01 * tok_s]
    return speed.stream_mismatch([0.98 * ratio * tok_s, ratio * tok_s, 1.01 * ratio * tok_s], fixed)


def first(*tokens: int | None, technique: str = "ar", k: int | None = None, **cell: Any) -> Finding | None:
    served = cell_of(technique=technique, k=k)
    return speed.late_first_token(served.model_copy(update=cell), [{"first_chunk_tokens": each} for each in tokens])


def prefill(model: str, precision: str, gpu: str, tok_s: float) -> Finding | None:
    return speed.impossible_prefill(cell_of(model, precision), load_gpu(gpu), tok_s)


def card(gpu: str, name: str | None) -> Finding | None:
    return other_gpu(load_gpu(gpu), name)


SOUND: dict[str, Finding | None] = {
    **{
        args: slow(8.8, args=args)
        for args in (
            "--enforce-eager", "--cpu-offload-gb 20", "-O0", "-O 0", "-O.cudagraph_mode=none",
            '--compilation-config {"cudagraph_mode":"NONE"}',
        )
    },
    "generate() launches every step of a 31B": slow(12.0, precision="bf16", generate=True),
    "generate() launches every step of a 12B": slow(15.0, model="gemma-4-12b", precision="bf16", generate=True),
    "31B on two cards": fast(160, "h100", args="--tensor-parallel-size 2"),
    "26B-A4B with its cache": fast(4604, "h200", 8000, 16, model="gemma-4-26b-a4b"),
    "a 31B's streams": streams(0.94, 88),
    "a 26B's streams": streams(1.06, 268),
    "tiny streams": streams(0.69, 549),
    "tiny streams that are fast": streams(1.24, 549),
    "scattered repeats": speed.stream_mismatch([150.0, 170.0, 160.0], [60.0, 100.0, 160.0]),
    "one of each": speed.stream_mismatch([160.0], [100.0]),
    "an H100": card("h100", "NVIDIA H100 80GB HBM3"),
    "nobody said": card("h100", None),
    "an A100": card("a100", "NVIDIA A100-PCIE-40GB"),
    "an H200": card("h200", "NVIDIA H200"),
    "a processor": card("cpu", CPU),
    "a client that slept once": speed.streamed_in_lumps([STEADY] * 9 + [LUMPS], 5),
    "of fewer streams, too": speed.streamed_in_lumps([STEADY] * 4 + [LUMPS], 5),
    "two steps are an answer": speed.streamed_in_lumps([SHORT] * 10, 5),
    "half of them joined": speed.streamed_in_lumps([(16, 5)] * 5 + [JOINED] * 5, 5),
    "three quarters of what it multiplies": prefill("gemma-4-31b", "bf16", "h100", 12_000),
    "a prefill in four bits": prefill("gemma-4-31b", "nvfp4", "b200", 120_000),
    "nobody says what it computes": prefill("gemma-4-31b", "autoround-int4", "gb10", 1e9),
    "AR's first token": first(*[1] * 8),
    "a draft's first token": first(*[1] * 8, technique="mtp", k=4),
    "some joined first steps": first(1, 1, 2, 2, technique="mtp", k=4),
    "two joined first steps": first(2, 2),
    "not streamed, or an older client's": first(None, None, None),
    "a canvas comes whole": speed.late_first_token(
        cell_of("diffusiongemma-26b-a4b", technique="diffusion"), [{"first_chunk_tokens": 4}] * 8
    ),
    "generate() verifies a draft": first(*[4] * 8, technique="mtp", k=4, engine=load_engine("transformers")),
    "a client that saw all later": speed.clock_mismatch([CALM, BUSY, FOUR_DEEP]),
    **{
        f"{guard.__name__} without {untold}": guard([request(15.0, 600.0) | dict.fromkeys(untold)] * 4)
        for untold in (("engine_ttft_ms",), ("engine_ttft_ms", "engine_queue_ms"))
        for guard in (speed.clock_mismatch, speed.held_back)
    },
    "a row of before clocks": speed.clock_mismatch([{"ttft_ms": 15.0, "wall_s": 0.6}]),
    "calm first tokens": speed.held_back([CALM] * 8),
    "all as late as the worst": speed.held_back([BUSY] * 8),
    "of two streams both": speed.held_back([HELD, HELD]),
    "not most of them": speed.held_back([HELD, HELD, CALM, CALM]),
    "not streamed": speed.held_back([FOUR_DEEP] * 4),
    "long prompts, many at once": speed.held_back([request(6500.0, 19000.0, made=4000.0, rest=12000.0)] * 8),
}  # fmt: skip


@pytest.mark.parametrize("figures", SOUND)
def test_figures_of_a_sound_engine_pass(figures: str) -> None:
    assert SOUND[figures] is None


FOUND: dict[str, dict[str, Finding | None]] = {
    "too_slow suspect": {
        "(a 31B at 8.8)": slow(8.8),
        "(a 31B in bf16 at 8.8)": slow(8.8, precision="bf16"),
        "(generate() of a 31B)": slow(8.8, precision="bf16", generate=True),
        "(generate() of a 12B)": slow(9.0, model="gemma-4-12b", precision="bf16", generate=True),
        "(a 31B at generate()'s rate)": slow(12.0, precision="bf16"),
        "(a 12B at generate()'s rate)": slow(15.0, model="gemma-4-12b", precision="bf16"),
    },
    "impossible_speed rejected": {
        "(31B on one card)": fast(160, "h100"),
        "(26B-A4B that reads its cache)": fast(10_000, "h100", 8000, 16, model="gemma-4-26b-a4b"),
        "(three of four prompts from a cache)": prefill("gemma-4-31b", "bf16", "h100", 100_000),
    },
    "stream_mismatch rejected": {
        **{f"(off by {ratio})": streams(ratio) for ratio in (0.5, 2.0, 0.66, 1.5)},
        "(steady repeats)": speed.stream_mismatch([150.0, 170.0, 160.0], [99.0, 100.0, 101.0]),
        "(beyond two)": speed.stream_mismatch([210.0, 220.0, 230.0], [60.0, 100.0, 160.0]),
        "(one of each)": speed.stream_mismatch([210.0], [100.0]),
    },
    "stream_burst rejected": {
        "one burst": speed.stream_mismatch([100.0, None, 100.0], [99.0, 100.0, 101.0]),
        "1 of 4 streams": speed.streamed_in_lumps([STEADY] * 3 + [LUMPS], 5),
        "2 of 10 streams": speed.streamed_in_lumps([STEADY] * 8 + [LUMPS] * 2, 5),
        "6 of 10 streams of up to 20 tokens": speed.streamed_in_lumps([(16, 5)] * 4 + [JOINED] * 6, 5),
        "2 of 10 streams brought": speed.streamed_in_lumps(
            [(16, 8)] * 2 + [(16, 1)] * 8, 1
        ),  # eight steps without a draft
    },
    "other_gpu suspect": {
        name: card(gpu, name)
        for gpu, name in (("h100", "NVIDIA H100 PCIe"), ("h100", CPU), ("a100", "NVIDIA A100-SXM4-80GB"))
    },
    "late_first_token suspect": {
        "2 of 3 streams had several tokens (median 4)": first(4, 4, 1),
        "(with drafts)": first(4, 4, 1, technique="mtp", k=4),
        "(with looked-up drafts)": first(4, 4, 1, technique="ngram", k=4),
        "3 of 4 first tokens were seen 6500 ms or more after": speed.held_back([CALM, HELD, HELD, HELD]),
    },
    "clock_mismatch suspect": {
        said: speed.clock_mismatch([CALM, row, FOUR_DEEP])
        for said, row in {
            "1 of 3 requests": request(None, 600.0),
            "8.0 ms to the first token, of which the engine's own 12.0": request(8.0, 670.0, queue=3.0),
            "600.0 ms to the last byte, of which the engine's own 659.1": request(15.0, 600.0),
        }.items()
    },
}
"""By reason and severity, each with words of its sentence, or with a name in brackets."""


@pytest.mark.parametrize(("said", "words"), [(said, words) for said, found in FOUND.items() for words in found])
def test_figures_that_can_not_be_are_found(said: str, words: str) -> None:
    found = FOUND[said][words]
    assert found is not None and f"{found.reason.value} {found.severity}" == said
    assert words.startswith("(") or words in found.sentence
