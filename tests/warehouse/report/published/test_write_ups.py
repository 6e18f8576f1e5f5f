"""The write-ups as data: every figure as its source prints it."""

import re
from pathlib import Path

import pytest

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.load import names
from warehouse.report.published import read
from warehouse.report.published.read import UNITS, PublishedRow, WriteUp, load_write_up, write_ups


def row_of(name: str, **identity: object) -> PublishedRow:
    rows = load_write_up(name).rows
    [found] = [row for row in rows if all(getattr(row, field) == value for field, value in identity.items())]
    return found


@pytest.mark.parametrize("name", write_ups())
def test_every_write_up_loads_and_its_rows_have_figures_of_things_that_we_know(name: str) -> None:
    write_up = load_write_up(name)
    assert write_up.gpu in names("gpus")
    assert re.fullmatch(r"2026.*", write_up.date)
    for row in write_up.rows:
        assert row.figures or row.acceptance_by_position, row
        assert row.technique in names("techniques"), row
        assert row.precision is None or row.precision in names("precisions"), row
        assert row.sd.keys() <= row.figures.keys(), row
    known = {row.model for row in write_up.rows} - set(names("models"))
    assert known <= {None, "gemma-4", "qwen3.6"}, "families only where the source names no single model"


def test_the_write_ups_are_those_of_the_page_of_sources() -> None:
    page = (ROOT / "docs/sources.md").read_text(encoding="utf-8")
    assert {*write_ups()} == {*re.findall(r"^## (.+)$", page, re.MULTILINE)}
    for name in write_ups():
        assert f"<{load_write_up(name).source}>" in page, name
        assert f'"{load_write_up(name).title}"' in page, name


@pytest.mark.parametrize(
    ("name", "identity", "figures"),
    [
        ("mtp-dflash-h100", {"model": "gemma-4-31b", "technique": "mtp", "concurrency": 1},
         {"tok_s": 125.3, "speedup": 3.11, "ttft_ms": 78.2, "tpot_ms": 8.0}),
        ("mtp-dflash-h100", {"model": "gemma-4-31b", "technique": "dflash-flash-attn", "concurrency": 16},
         {"tok_s": 725, "ttft_ms": 3381, "tpot_ms": 13.9}),
        ("mtp-dflash-h100", {"model": "gemma-4-26b-a4b", "workload": "multilingual", "technique": "mtp"},
         {"speedup": 1.99}),
        ("mtp-spark", {"technique": "ar", "condition": "pp2048 @ d8192"},
         {"prefill_tok_s": 791.49, "ttfr_ms": 12941.54, "est_ppt_ms": 12938.53, "ttft_ms": 12941.54}),
        ("mtp-spark", {"technique": "mtp", "condition": "tg128 @ d4096"}, {"decode_tok_s": 18.40, "peak_tok_s": 23.33}),
        ("mtp-spark", {"condition": "total of 4"}, {"tok_s": 118.3, "wall_s": 34.59, "tokens": 4096}),
        ("mtp-gb10", {"model": "gemma-4-31b", "workload": "ja_finance", "technique": "mtp"},
         {"wall_s": 36.23, "chars_s": 26.3, "chars": 952, "speedup": 2.54}),
        ("mtp-gb10", {"condition": "K sweep", "k": 8, "workload": "en_finance"}, {"wall_s": 14.12, "speedup": 1.07}),
        ("mtp-gb10", {"condition": "all prompts", "k": 8},
         {"drafts": 1576, "draft_tokens": 12608, "accepted_tokens": 3829, "acceptance_rate": 0.304,
          "accepted_per_draft": 2.43}),
        ("mtp-transformers-h100", {"technique": "mtp"},
         {"tok_s": 27.4, "wall_s": 74, "tokens": 2048, "memory_gb": 63, "speedup": 3.1}),
        ("mtp-diffusion-h100", {"model": "qwen3.6-35b-a3b", "technique": "mtp-embedded", "condition": "short"},
         {"tok_s": 311, "speedup": 1.43}),
        ("mtp-diffusion-h100", {"technique": "diffusion", "condition": "8K"}, {"tok_s": 578}),
        ("mtp-diffusion-h100", {"model": "qwen3.6-27b", "technique": "ar", "suite": "kmmlu"}, {"score": 0.634}),
        ("mtp-diffusion-h100", {"model": "gemma-4-31b", "technique": "mtp", "framework": "inspect"}, {"score": 0.747}),
        ("mtp-diffusion-h100", {"model": "gemma-4-31b", "technique": "mtp", "condition": "temperature 0"},
         {"parity_equal": 3}),
    ],
)  # fmt: skip
def test_figures_are_those_of_the_source(name: str, identity: dict[str, object], figures: dict[str, float]) -> None:
    assert row_of(name, **identity).figures == figures


def test_spreads_and_positions_are_kept_as_printed_and_a_table_says_once_what_its_rows_share() -> None:
    assert row_of("mtp-spark", technique="mtp", condition="tg128").sd == {"decode_tok_s": 2.26, "peak_tok_s": 2.16}
    positions = row_of("mtp-gb10", condition="all prompts", model="gemma-4-31b").acceptance_by_position
    assert positions == (0.787, 0.589, 0.456, 0.346)
    write_up: WriteUp = load_write_up("mtp-spark")
    assert {row.kv_cache_dtype for row in write_up.rows} == {"fp8", "fp8_e4m3"}
    assert {row.k for row in write_up.rows if row.technique == "mtp"} == {2, 7}


def test_a_number_sign_does_not_cut_a_text_off() -> None:
    for name in write_ups():
        lines = (read.FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
        plain = [line for line in lines if " #" in line and not re.search(r'"[^"]*#[^"]*"|"  # ', line)]
        assert not plain, name
    assert load_write_up("mtp-spark").engine == "vLLM with PR #41745, in spark-vllm-docker; no release number"


def test_the_accuracy_tables_are_complete_and_every_figure_has_a_unit() -> None:
    scored = [row for row in load_write_up("mtp-diffusion-h100").rows if row.score is not None and not row.extractor]
    assert len(scored) == 25 + 5 + 10 + 5  # AR by five suites, MTP by lm-eval, AR and MTP by inspect, diffusion
    assert all(row.n == 198 for row in scored if row.suite == "gpqa")
    assert all(unit and unit != "None" for unit in UNITS.values())


def test_a_misspelt_figure_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (read.FOLDER / "mtp-transformers-h100.yaml").read_text(encoding="utf-8").replace("wall_s: 74", "wal_s: 74")
    (tmp_path / "mtp-transformers-h100.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(read, "FOLDER", tmp_path)
    with pytest.raises(SpecsweepError, match=r"wal_s: unknown key"):
        load_write_up.__wrapped__("mtp-transformers-h100")  # past its cache
