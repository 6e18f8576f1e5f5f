"""What a technique adds to its engine's arguments, and what it may not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from configs.load import ConfigError, load_sweep

Write = Callable[..., str]

TECHNIQUE = "name: wide\nmethod: ngram\ntakes_k: true\nengine_args: [{args}]\n"
ROW = "  - {model: tiny-gemma4, precision: bf16, technique: wide, k: 4}\n"


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ("--tensor-parallel-size, '2'", "--tensor-parallel-size"),
        ("-tp=2", "--tensor-parallel-size"),
        ("--pipeline_parallel_size=2", "--pipeline-parallel-size"),
        ("-dp, '4'", "--data-parallel-size"),
    ],
)
def test_cards_belong_to_the_engine_which_the_control_has_too(
    write: Write, sweep_text: str, args: str, named: str
) -> None:
    write(TECHNIQUE.format(args=args), "techniques/wide.yaml")
    with pytest.raises(ConfigError) as caught:
        load_sweep(write(sweep_text + ROW))
    message = str(caught.value)
    assert f"cells[2].technique: 'wide' has {named} in its engine_args" in message
    assert message.endswith("accepted: in `args` of the sweep's engine")


def test_other_arguments_are_a_technique_s_own(write: Write, sweep_text: str) -> None:
    write(TECHNIQUE.format(args="--kv-cache-dtype, fp8"), "techniques/wide.yaml")
    assert load_sweep(write(sweep_text + ROW)).cells[2].technique == "wide"
