"""Published beside measured: which rows are twins, which figures are divided, and what is said of the rest."""

import pytest

from configs.cell import argument
from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_sweep
from configs.steps.load import with_category
from configs.steps.prompts import PromptsStep
from tests.warehouse.report.pages import page_of, row, seen
from tests.warehouse.synthetic import DEMO, Behaviour, write_demo_run
from warehouse.dataset.tables import RESULTS_CONSOLIDATED
from warehouse.ledger.store import Store
from warehouse.report.beside import beside_section
from warehouse.report.display.figures import Row
from warehouse.report.published.read import Published, load_write_up, published_rows, write_ups
from warehouse.report.published.twins import Twin, twins

PUBLISHED = tuple(
    Published(write_up, each.model_copy(update={"verdict": "ok", "reasons": (), "details": ()}))
    for write_up in map(load_write_up, write_ups())
    for each in write_up.rows
)  # fmt: skip


def measured(technique: str = "mtp", tok_s: float | None = 180.0, **columns: object) -> Row:
    known = {"model": "gemma-4-31b", "precision": "fp8", "k": 4, "output_tokens": 512}
    return row(technique, tok_s, **known | columns)


def found(*rows: Row) -> dict[tuple[str, str], Twin]:
    return {(twin.published.write_up.name, twin.figure): twin for twin in twins(rows, PUBLISHED)}


def test_rates_and_speedups_are_divided_on_the_same_card_and_on_another_speedups_alone_with_a_caveat() -> None:
    ours = measured(speedup=2.7, speedup_lo=2.6, speedup_hi=2.8, tok_s_lo=179.0, tok_s_hi=181.0)
    by_figure = found(ours)
    speedup, rate = by_figure["mtp-diffusion-h100", "speedup"], by_figure["mtp-diffusion-h100", "tok_s"]
    assert (speedup.theirs, speedup.is_within) == (2.62, True)
    assert speedup.ratio == pytest.approx(2.7 / 2.62)
    assert (rate.theirs, rate.is_within) == (178, False)
    assert speedup.differs == ("ours has K=4, theirs isn't published",)
    by_figure = found(measured(gpu="h200", speedup=2.7, speedup_lo=2.6, speedup_hi=2.8, tok_s_lo=1.0, tok_s_hi=999.0))
    speedup, rate = by_figure["mtp-diffusion-h100", "speedup"], by_figure["mtp-diffusion-h100", "tok_s"]
    assert rate.ratio is None and rate.is_within is None
    assert rate.differs[0] == "measured on h200, published for h100: not compared"
    assert speedup.is_within is True
    assert speedup.differs[0] == "measured on h200, published for h100: each over AR on its own machine"


def test_steps_and_canvas_are_told_of_ours_and_what_is_made_up_or_of_one_kind_of_text_stands_beside_nothing() -> None:
    asked = {"model": "diffusiongemma-26b-a4b", "k": None, "denoising_steps": 8, "canvas_length": 256}
    rate = found(measured("diffusion", **asked))["mtp-diffusion-h100", "tok_s"]
    said = [f"ours has {name}, theirs isn't published" for name in ("denoising_steps=8", "canvas_length=256")]
    assert rate.differs == tuple(said)
    assert found(measured(made_up="weights=dummy", speedup=2.7, speedup_lo=2.6, speedup_hi=2.8)) == {}
    whole = measured(precision="bf16", k=8, step="load", condition="load c=1", mode="natural")
    assert ("mtp-dflash-h100", "tok_s") in found(whole)
    assert ("mtp-dflash-h100", "tok_s") not in found(whole | {"condition": "load c=1, coding"})


def test_a_workload_stands_beside_that_workload_only() -> None:
    asked = {"step": "prompts", "mode": "natural", "speedup": 2.6, "speedup_lo": 2.5, "speedup_hi": 2.7}

    def beside(workload: str) -> set[tuple[str, str, float]]:
        found = twins([measured(gpu="gb10", condition=f"{workload} c=1", **asked)], PUBLISHED)
        return {(twin.published.write_up.name, twin.figure, twin.theirs) for twin in found}

    assert beside("ja_finance") == {("mtp-gb10", "speedup", 2.54)}
    assert beside("py_code") == {("mtp-gb10", "speedup", 3.52)}
    assert beside("qa") == beside("ko_summary") == set(), "nobody published them of this model in fp8"
    served = {"model": "gemma-4-31b-nvfp4", "precision": "nvfp4", "k": 7, "gpu": "gb10"}
    of_qa = twins([measured(tok_s=40.0, condition="qa c=1", **asked | served)], PUBLISHED)
    assert {(twin.published.row.workload, twin.theirs) for twin in of_qa} == {("Q&A", 39.1), ("Q&A", 39.0)}
    together = measured(tok_s=99.0, concurrency=4, condition="qa c=4", **asked | served)
    assert twins([together], PUBLISHED) == [], "theirs is of no single workload"


@pytest.mark.parametrize(("sweep", "source", "rows"), [("k-sweep", "mtp-gb10", 24), ("depth", "mtp-spark", 10)])
def test_the_sweep_of_a_write_up_has_the_cell_and_workload_of_each_row(sweep: str, source: str, rows: int) -> None:
    planned = expand(load_sweep(sweep)).cells
    ours = {
        (each.cell.model.name, each.cell.precision.name, each.cell.technique.name, each.cell.k, workload.name)
        for each in planned
        for step in each.steps
        if isinstance(step, PromptsStep) and 1 in step.concurrencies
        for workload in step.workloads
    }
    timed = [row for row in load_write_up(source).rows if row.wall_s is not None and row.workload is not None]
    whole = [row for row in timed if row.condition in ("max_tokens=600", "K sweep", "sequential")]
    assert len(whole) == rows
    for each in whole:
        name = str(each.workload).replace("&", "").lower()
        assert (each.model, each.precision, each.technique, each.k, name) in ours, each


def test_a_workloads_characters_and_seconds_stand_beside_theirs_and_seconds_up_to_another_cap_are_not_divided() -> None:
    ours = measured(tok_s=23.0, gpu="gb10", model="gemma-4-26b-a4b", step="prompts", mode="natural",
                    condition="py_code c=1", output_tokens=600, chars_s=250.0, answer_s=9.0)  # fmt: skip
    found = [twin for twin in twins([ours], PUBLISHED) if twin.published.write_up.name == "mtp-gb10"]
    figures = {(twin.figure, twin.column, twin.ours, twin.theirs, twin.ratio is not None) for twin in found}
    assert ("chars_s", "chars_s", 250.0, 279.8, True) in figures
    seconds = {each[1:] for each in figures if each[0] == "wall_s"}
    assert seconds == {("answer_s", 9.0, theirs, theirs < 10) for theirs in (8.30, 8.66, 15.58)}
    [longer] = [twin for twin in found if twin.theirs == 15.58]
    assert "600 output tokens here, 1500 there: not compared" in longer.differs
    page = beside_section(seen(ours, published=PUBLISHED)) or ""
    assert "characters/s" in page and "seconds of an answer" in page


@pytest.mark.parametrize(("concurrency", "asked"), [(1, 2), (16, 2), (None, 0)])
def test_a_category_averaged_over_loads_stands_beside_ours_at_each_load(concurrency: int | None, asked: int) -> None:
    load = {"precision": "bf16", "step": "load", "mode": "natural", "speedup": 2.0, "concurrency": concurrency}

    def of(category: str, **served: object) -> list[Twin]:
        shape = {"condition": with_category(f"load c={concurrency}", category)} | load | served
        return twins([measured(**shape)], PUBLISHED)

    moe = {"technique": "dflash-flash-attn", "k": 15, "model": "gemma-4-26b-a4b"}
    found = [*of("coding", k=8), *of("stem", **moe)]
    assert [(twin.figure, twin.theirs) for twin in found] == [("speedup", 3.82), ("speedup", 2.15)][:asked]
    said = "theirs is an average over several loads"
    assert all(said in twin.differs for twin in found)
    assert of("humanities", k=8) == [], "not published of this model"
    whole = twins([measured(**load, k=8, condition=f"load c={concurrency}")], PUBLISHED)
    assert all(said not in twin.differs and twin.published.row.workload is None for twin in whole)


def test_a_part_of_a_request_stands_beside_that_part_at_that_depth_and_never_beside_a_whole_request() -> None:
    served = {"model": "gemma-4-31b-int4", "precision": "autoround-int4", "gpu": "gb10", "step": "depth", "k": 2}
    decode = measured(tok_s=18.0, tok_s_lo=17.0, tok_s_hi=19.0, mode="decode", condition="tg128 @ d4096",
                      context_tokens=6144, output_tokens=128, speedup=1.6, tpot_ms=55.0, **served)  # fmt: skip
    twin, peak = twins([decode | {"peak_tok_s": 22.0}], PUBLISHED)
    assert (twin.figure, twin.ours, twin.theirs, twin.is_within) == ("decode_tok_s", 18.0, 18.40, True)
    assert (peak.figure, peak.ours, peak.theirs, peak.is_within) == ("peak_tok_s", 22.0, 23.33, None)
    prefill = decode | {"tok_s": 800.0, "mode": "prefill", "condition": "pp2048 @ d4096", "ttft_ms": 7700.0}
    by_figure = {twin.figure: (twin.ours, twin.theirs) for twin in twins([prefill], PUBLISHED)}
    assert by_figure == {"prefill_tok_s": (800.0, 794.26), "ttft_ms": (7700.0, 7740.21)}
    assert twins([decode | {"condition": "tg128 @ d4000"}, decode | {"k": 7}], PUBLISHED) == []
    whole = {"model": "gemma-4-31b", "precision": "fp8", "technique": "ar", "k": None, "condition": "tg128",
             "context_tokens": 64}  # fmt: skip
    assert twins([decode | whole], PUBLISHED) == [], "68 tok/s there is of a whole request"
    page = beside_section(seen(decode, prefill, published=PUBLISHED)) or ""
    assert "tokens/s without prefill" in page and "prompt tokens/s" in page


def memory_row(**columns: object) -> Row:
    known = {"step": "memory", "condition": "full context", "gpus": 1, "gpu": "gb10", "context_tokens": 4080,
             "output_tokens": 16, "weights_bytes": 31.9e9, "kv_cache_bytes": 60e9, "kv_bytes_per_token": 500_000.0,
             "engine_memory_peak_bytes": 95e9, "gpu_memory_peak_bytes": 96e9}  # fmt: skip
    return measured(tok_s=None, **known | columns)


def test_a_footprint_that_adds_up_parts_stands_beside_our_weights_and_the_cache_of_one_request_as_long() -> None:
    """vLLM's 95 GB are the share of the card that it was told to take."""
    assert all(each.row.memory_is is not None for each in PUBLISHED if each.row.memory_gb is not None), "what it counts"
    [twin] = twins([memory_row()], PUBLISHED)
    found = twin.published.write_up.name, twin.figure, twin.column, twin.theirs
    assert found == ("mtp-gb10", "memory_gb", "weights_bytes", 36)
    assert twin.ours == pytest.approx(31.9 + 4096 * 500_000 / 1e9) and twin.ratio == pytest.approx(twin.ours / 36)
    assert twin.differs == (
        "their checkpoint is RedHatAI/gemma-4-31B-it-FP8-Dynamic",
        "both add up weights and the cache of 4096 tokens",
        "their cache is in fp8",
        "whether their GB are of 10^9 or 2^30 bytes, 7 % apart, isn't said",
    )
    same = twins([memory_row(argv="vllm serve m --kv-cache-dtype=fp8", gpu="h100")], PUBLISHED)[0].differs
    assert "their cache is in fp8" not in same and "measured on h100, published for gb10: not a speed" in same
    page = beside_section(seen(memory_row(), published=PUBLISHED)) or ""
    assert "GB of memory" in page and "<td>full context</td>" in page.replace(' class=""', "")


def test_what_was_taken_of_a_card_stands_beside_an_engine_that_takes_what_it_needs() -> None:
    generate = {"precision": "bf16", "gpu": "h100", "engine": "transformers", "kv_cache_bytes": None,
                "kv_bytes_per_token": None, "engine_memory_peak_bytes": 65.5e9, "weights_bytes": 62.3e9}  # fmt: skip
    [twin] = twins([memory_row(**generate)], PUBLISHED)
    found = twin.published.write_up.name, twin.column, twin.ours, twin.theirs
    assert found == ("mtp-transformers-h100", "engine_memory_peak_bytes", 65.5, 63)
    assert twin.ratio == pytest.approx(65.5 / 63)
    assert twin.differs[0] == "ours is the peak of the engine's processes over a request of 4096 tokens"
    alone = twins([memory_row(**generate | {"technique": "ar", "k": None})], PUBLISHED)
    assert [each.theirs for each in alone] == [62]


@pytest.mark.parametrize(
    "columns",
    [
        {"k": 2}, {"context_tokens": 32_752}, {"gpus": 2}, {"weights_bytes": None}, {"kv_bytes_per_token": None},
        {"precision": "bf16"}, {"made_up": "weights=dummy"},
        {"condition": None, "context_tokens": None, "output_tokens": None, "weights_bytes": None, "gpus": None},
    ],
    ids=["another K", "longer", "two cards", "weights unsaid", "cache unsaid", "vLLM in bf16", "dummy", "no start"],
)  # fmt: skip
def test_memory_that_means_something_else_is_no_twin(columns: dict[str, object]) -> None:
    assert twins([memory_row(**columns)], PUBLISHED) == []


def test_what_a_guard_flagged_is_shown_and_never_divided() -> None:
    suspect = found(measured(speedup=2.7, speedup_lo=2.6, speedup_hi=2.8, verdict="suspect"))
    twin = suspect["mtp-diffusion-h100", "speedup"]
    assert (twin.ratio, twin.is_within, twin.differs[0]) == (None, None, "ours is suspect: not compared")
    [slow] = [each for each in published_rows() if each.row.tok_s == 8.8]
    [twin] = twins([measured("ar", 41.0, precision="bf16", k=None)], [slow])
    assert (twin.theirs, twin.ratio, twin.differs[0]) == (8.8, None, "theirs is suspect: not compared")


OTHERS = {"model": "gemma-4-12b", "precision": "int8", "technique": "dflash", "concurrency": 4, "context_tokens": 8000}


@pytest.mark.parametrize("name", OTHERS)
def test_another_model_precision_technique_or_load_is_no_twin(name: str) -> None:
    other = measured(speedup=2.7, **{name: OTHERS[name]})
    assert all(twin.theirs not in (178, 2.62) for twin in twins([other], PUBLISHED))


def test_what_a_write_up_served_is_served_by_its_sweep_and_its_dflash_drafts_with_flash_attn() -> None:
    cells = [each.cell for each in expand(load_sweep("speed-bench")).cells]
    ours = {(cell.model.name, cell.precision.name, cell.technique.name, cell.k) for cell in cells}
    rows = load_write_up("mtp-dflash-h100").rows
    assert ours == {(each.model, each.precision, each.technique, each.k) for each in rows}
    backends = {cell.technique.method: cell.technique.speculative_config.get("attention_backend") for cell in cells}
    assert backends == {"ar": None, "mtp": None, "dflash": "flash_attn"}
    for args in (cell.engine.args for cell in cells):
        assert argument(args, "max_num_batched_tokens") == "4096"
        assert argument(args, "attention_backend") == "TRITON_ATTN" and "--language-model-only" in args


def test_k_must_be_the_published_one_and_long_contexts_are_alike_within_a_tenth() -> None:
    bf16 = {"precision": "bf16", "speedup": 3.0}
    assert ("mtp-dflash-h100", "speedup") in found(measured(k=8, **bf16))
    assert ("mtp-dflash-h100", "speedup") not in found(measured(k=4, **bf16))
    ar = {"technique": "ar", "k": None}
    assert found(measured(tok_s=61.0, context_tokens=8192, **ar))["mtp-diffusion-h100", "tok_s"].theirs == 62
    assert found(measured(tok_s=66.0, context_tokens=64, **ar))["mtp-diffusion-h100", "tok_s"].theirs == 68
    assert not found(measured(tok_s=61.0, context_tokens=4096, **ar))
    qwen = measured("mtp-embedded", 147.0, model="qwen3.6-27b", k=3, speedup=1.8)
    assert found(qwen)["mtp-diffusion-h100", "speedup"].theirs == 1.86


def test_a_score_has_its_twin_by_suite_and_framework_whatever_the_card() -> None:
    scored = {
        "tok_s": None, "mode": None, "condition": None, "metric": "accuracy", "score_lo": 0.77, "score_hi": 0.86,
        "gpu": "h200", "score": 0.82, "n": 198, "extractor": "last-in-body",
    }  # fmt: skip
    lm = found(measured(step="eval-gpqa", framework="lm-eval", **scored))["mtp-diffusion-h100", "score"]
    inspect = found(measured(step="eval-gpqa-inspect", framework="inspect", **scored))["mtp-diffusion-h100", "score"]
    assert (lm.theirs, lm.is_within) == (0.818, True)
    assert (inspect.theirs, inspect.is_within) == (0.747, False)
    haerae = measured("ar", k=None, step="eval-haerae", framework="hret", **scored)
    assert found(haerae)["mtp-diffusion-h100", "score"].theirs == 0.898


DIAGNOSTIC = {"any-of-k": "pass@8", "reported": "inst_level_loose_acc", "framework": "prompt_level_strict_acc"}


@pytest.mark.parametrize("extractor", [*DIAGNOSTIC, "checker"])
def test_a_score_that_does_not_count_stands_beside_no_published_one(extractor: str) -> None:
    scored = {"tok_s": None, "mode": None, "condition": None, "score": 0.95, "n": 541, "framework": "lm-eval"}
    scored |= {"step": "eval-ifeval", "metric": "prompt_level_strict_acc", "extractor": "checker"}
    assert ("mtp-diffusion-h100", "score") in found(measured("ar", k=None, **scored))
    other = {"metric": DIAGNOSTIC.get(extractor, "smoke"), "extractor": extractor}
    assert not found(measured("ar", k=None, **scored | other))
    [said] = [column.meaning for column in RESULTS_CONSOLIDATED.columns if column.name == "extractor"]
    assert "any-of-k" in said.partition("don't")[0] and "smoke" in said


def test_the_section_shows_both_figures_and_why_a_published_row_is_flagged_and_without_a_twin_there_is_none() -> None:
    ours = measured("ar", 41.0, precision="bf16", k=None, tok_s_lo=40.0, tok_s_hi=42.0)
    page = beside_section(seen(ours, published=published_rows())) or ""
    for said in ("8.8", "40.3", "mtp-transformers-h100, h100, 2026-05-05", "one JarvisLabs H100 80GB", "suspect"):
        assert said in page
    assert "1 published row that our guards flag" in page and "gives 21 or more" in page
    ours = measured(speedup=2.7)
    for alone in (row("mtp", 900.0, model="tiny-gemma4", k=4), ours | {"verdict": "rejected"}):
        assert beside_section(seen(alone, published=PUBLISHED)) is None
    assert beside_section(seen(ours)) is None


MEASURED = {
    ("bf16", "ar", None): Behaviour(41.5, noise=0.002),
    ("bf16", "mtp", 8): Behaviour(127, (0.84, 0.7, 0.57, 0.46, 0.36, 0.28, 0.2, 0.14), noise=0.01),
    ("fp8", "ar", None): Behaviour(66, noise=0.002),
    ("fp8", "mtp", 4): Behaviour(172, (0.8, 0.6, 0.46, 0.35), noise=0.01),
}
"""About what the published cells do."""


def test_published_twins_are_on_the_page_with_source_and_verdict(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for cell, behaviour in MEASURED.items():
        monkeypatch.setitem(DEMO, cell, behaviour)
    plan = expand(load_sweep(str(ROOT / "tests/warehouse/demo_like/published.yaml")))
    mirrored = tuple(each.model_copy(update={"visits": "mirrored"}) for each in plan.cells)
    write_demo_run(local, plan=plan.model_copy(update={"cells": mirrored}))
    page = page_of(local)
    assert ("a", {"href": "#beside"}) in page.elements
    figures = ("40.3", "125.3", "178", "2.62", "3.11")
    for said in ("mtp-dflash-h100, h100, 2026-05-12", "one JarvisLabs H100 80GB", *figures):
        assert said in page.text
    assert "2 published rows that our guards flag" in page.text
    assert "8.8 tok/s without prefill; this machine's memory gives 21 or more" in page.text
    assert "4.4 x AR with 3.18 tokens per decoding step: these two can't go together" in page.text
    assert "ours has K=4, theirs isn't published" in page.text
