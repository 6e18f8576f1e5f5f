"""Weights that can't lie on their cards are refused in the plan; whatever might fit is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from configs.load import ConfigError, load_sweep

Write = Callable[..., str]

SWEEP = """\
name: mine
engine: served
gpu: {gpu}
suite: tiny-quick
serving: {{max_model_len: 2048{share}}}
cells:
  - {{model: gemma-4-12b, precision: fp8, technique: ar}}
  - {{model: {model}, precision: {precision}, technique: ar}}
"""
SEVENTY = """\
name: seventy
family: llama
hub_id: meta-llama/Llama-3.3-70B-Instruct
total_params_b: 70.6
active_params_b: 70.6
"""


@pytest.fixture
def planned(write: Write) -> Callable[..., str]:
    """Loads a sweep of two rows, whose second is given, on an engine with these arguments; its name."""

    def load(gpu: str, model: str, precision: str, *args: str, share: float | None = None) -> str:
        write(SEVENTY, "models/seventy.yaml")
        write("name: blind\n", "gpus/blind.yaml")
        write(f"name: served\ncommand: [vllm]\nargs: [{', '.join(args)}]\n", "engines/served.yaml")
        said = "" if share is None else f", gpu_memory_utilization: {share}"
        return load_sweep(write(SWEEP.format(gpu=gpu, model=model, precision=precision, share=said))).name

    return load


@pytest.mark.parametrize(
    ("row", "figures"),
    [
        (("l4", "gemma-4-31b", "bf16"), "61.4 GB of weights a card, and of 'l4' (24 GiB) the engine takes 23.7 GB"),
        (("l4", "gemma-4-31b-shape", "bf16"), "61.4 GB"),  # dummy weights lie there like any others
        (("h100", "seventy", "bf16"), "141.2 GB of weights a card, and of 'h100' (80 GiB) the engine takes 79.0 GB"),
        (("l40s", "seventy", "bf16", "-tp=2"), "70.6 GB of weights a card"),
        (("h100", "seventy", "bf16", "-dp=2"), "141.2 GB of weights a card"),  # each copy is whole
    ],
)
def test_weights_that_can_not_fit_are_refused_with_the_row_the_figures_and_the_remedy(
    planned: Callable[..., str], row: tuple[str, ...], figures: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(*row)
    said = str(caught.value)
    assert said.startswith(f"mine.yaml:8: cells[1].model: '{row[1]}' in bf16 is ") and figures in said
    assert "accepted: a narrower precision, a larger gpu, or a larger --tensor-parallel-size" in said
    assert "\n" not in said


def test_the_share_of_the_memory_that_the_cell_names_counts(planned: Callable[..., str]) -> None:
    assert planned("h100", "seventy", "fp8", share=0.9) == "mine"
    with pytest.raises(ConfigError, match=r"70\.6 GB of weights a card, .* takes 68\.7 GB"):
        planned("h100", "seventy", "fp8", share=0.8)


@pytest.mark.parametrize(
    "row",
    [
        ("h100", "gemma-4-31b", "bf16"),
        ("l4", "gemma-4-31b-int4", "autoround-int4"),
        ("h100", "seventy", "bf16", "--tensor-parallel-size=2"),
        ("h100", "seventy", "bf16", "--pipeline-parallel-size=2"),
        ("h100", "seventy", "bf16", "-dp=2", "--enable-expert-parallel"),
        ("h100", "seventy", "bf16", "--cpu-offload-gb=80"),
        ("h100", "seventy", "bf16", "'--hf-overrides={num_hidden_layers: 4}'"),
        ("blind", "seventy", "bf16"),
        ("cpu", "seventy", "bf16"),
        ("auto", "seventy", "bf16"),
    ],
)
def test_what_may_fit_is_planned(planned: Callable[..., str], row: tuple[str, ...]) -> None:
    assert planned(*row) == "mine"
