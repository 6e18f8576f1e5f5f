"""A base model in a folder of this machine, through the real vLLM: completions instead of chats, and right rows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import polars as pl
import pytest

from configs.checkout import ROOT
from configs.local_checkpoint import digest_of
from tests.busy_machine import PATIENCE_S
from tests.engine.tiny_runs import accusations, measure, results
from tests.fake_run import write_sweep

pytestmark = [pytest.mark.engine, pytest.mark.slow(80)]

FILES = {
    "sweep.yaml": """
name: base
engine: vllm-cpu
gpu: cpu
suite: base
spot: false
serving: {max_model_len: 512}
cells:
  - {model: my-base, precision: bf16, technique: ar}
""",
    "suites/base.yaml": """
name: base
steps:
  - {step: smoke, items: 2}
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 400, output_tokens: 64, repeats: 3, requests: 1}
  - {step: parity, prompts: prose, n_prompts: 2, context_tokens: 64, output_tokens: 32}
  - {step: eval-tiny, items: 4}
""",
    "models/my-base.yaml": """
name: my-base
family: mine
hub_id: %s
total_params_b: 0.00015
active_params_b: 0.00015
chat: false
""",
}


@pytest.fixture(scope="module")
def checkpoint(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training") / "checkpoint"
    subprocess.run([engine_python, "-m", "tests.engine.taught_base", folder], cwd=ROOT, check=True, timeout=PATIENCE_S)
    return folder


@pytest.fixture(scope="module")
def rows(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    folder = tmp_path_factory.mktemp("base")
    write_sweep(folder, {name: text.replace("%s", str(checkpoint)) for name, text in FILES.items()})
    return results(measure(str(folder / "sweep.yaml"), folder))


def test_a_base_model_in_a_folder_has_the_rows_of_any_other_and_they_say_what_it_is(
    rows: pl.DataFrame, checkpoint: Path
) -> None:
    assert not list(checkpoint.glob("*.jinja")), "there is no template to chat by"
    assert set(rows["step"]) == {"smoke", "throughput", "parity"}, "and no evaluation"
    assert set(rows["api"]) == {"completions"}
    assert set(rows["model_revision"]) == {digest_of(checkpoint)}
    assert accusations(rows) == []
    assert rows.filter(step="smoke")["verdict"].to_list() == ["ok"], "it continued the ten texts"


def test_its_prompts_have_the_length_that_their_condition_names(rows: pl.DataFrame) -> None:
    """To a character: of four tokens, in the family's tokenizer."""
    fixed = rows.filter(step="throughput", mode="fixed")
    assert fixed["tok_s"][0] > 0 and fixed["prompt_tokens"][0] == pytest.approx(fixed["context_tokens"][0], abs=4)
    assert rows.filter(step="throughput", mode="stream")["ttft_ms"][0] > 0
