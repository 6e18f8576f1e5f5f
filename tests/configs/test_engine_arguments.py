"""What an engine and a technique add to a cell's command, and what they may not, because its label shows it."""

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


ENGINE = "name: own\nenvironment: engine-cpu\n{field}: [{args}]\n"


@pytest.mark.parametrize(
    ("field", "args", "named"),
    [
        ("args", "--max-model-len=4096", "'--max-model-len=4096' takes .*; accepted: in `serving`, as max_model_len"),
        ("args", "--max_num_seqs, '4'", "accepted: in `serving`, as max_num_seqs"),
        ("args", "--quantization, fp8", "accepted: in the precision's file"),
        ("args", "-q=fp8", "accepted: in the precision's file"),
        ("args", "--enable-prefix-caching", "accepted: in `serving`, as prefix_cache"),
        ("args", "--speculative-config.num_speculative_tokens=7", "accepted: in the technique's file"),
        ("draft_args", "--revision=main", "accepted: in the model's file, as revision"),
        ("args", "--port=80", "accepted: none: it is chosen for each start"),
    ],
)
def test_an_engine_takes_no_argument_from_its_cells(
    write: Write, sweep_text: str, field: str, args: str, named: str
) -> None:
    write(ENGINE.format(field=field, args=f"--enforce-eager, {args}"), "engines/own.yaml")
    with pytest.raises(ConfigError, match=rf"own\.yaml:3: {field}\[1\]: .*{named}"):
        load_sweep(write(sweep_text.replace("vllm-cpu", "own")))


def test_an_engine_has_arguments_of_its_own(write: Write, sweep_text: str) -> None:
    write(ENGINE.format(field="args", args="--load-format=runai_streamer, --kv-cache-dtype, fp8"), "engines/own.yaml")
    assert load_sweep(write(sweep_text.replace("vllm-cpu", "own"))).engine == "own"


def test_a_technique_takes_no_argument_from_its_cells(write: Write, sweep_text: str) -> None:
    write(TECHNIQUE.format(args="--max-model-len=4096"), "techniques/wide.yaml")
    with pytest.raises(ConfigError, match=r"wide\.yaml:4: engine_args\[0\]: .*accepted: in `serving`"):
        load_sweep(write(sweep_text + ROW))


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ("num_speculative_tokens: 7", r"num_speculative_tokens: 7 would be .* label; accepted: in the row, as k"),
        ("method: eagle", "method: 'eagle' would be .*; accepted: as method of this file"),
        ("model: me/draft", "model: 'me/draft' would be .*; accepted: in the row, as draft"),
        ("revision: v2", "revision: 'v2' would be .*; accepted: in the row, as revision of its draft"),
    ],
)
def test_a_technique_says_no_k_and_no_draft_of_its_own_where_rows_do(
    write: Write, sweep_text: str, config: str, named: str
) -> None:
    text = f"name: wide\nmethod: mtp\ntakes_k: true\nneeds_draft: true\nspeculative_config: {{{config}}}\n"
    write(text, "techniques/wide.yaml")
    with pytest.raises(ConfigError, match=rf"wide\.yaml:5: speculative_config\.{named}"):
        load_sweep(write(sweep_text.replace("technique: mtp,", "technique: wide,")))


def test_a_technique_without_k_and_draft_may_say_its_own(write: Write, sweep_text: str) -> None:
    text = "name: fixed\nmethod: eagle\nspeculative_config: {model: me/eagle, num_speculative_tokens: 3}\n"
    write(text, "techniques/fixed.yaml")
    row = "  - {model: tiny-gemma4, precision: bf16, technique: fixed}\n"
    assert load_sweep(write(sweep_text + row)).cells[2].technique == "fixed"
