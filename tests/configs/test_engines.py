"""What engines can hold, serve and be told: of a cell that can't be, the plan says so before anything starts."""

import pytest

from configs.expand import expand
from configs.load import ConfigError, load_sweep
from tests.configs.conftest import Write

TECHNIQUE = "name: wide\nmethod: ngram\ntakes_k: true\nengine_args: [{args}]\n"
ROW = "  - {model: tiny-gemma4, precision: bf16, technique: wide, k: 4}\n"

SHARDED = {"--tensor-parallel-size, '2'": "--tensor-parallel-size", "-tp=2": "--tensor-parallel-size",
           "--pipeline_parallel_size=2": "--pipeline-parallel-size", "-dp, '4'": "--data-parallel-size"}  # fmt: skip


@pytest.mark.parametrize("args", SHARDED)
def test_cards_belong_to_the_engine_that_ar_has_too(refused: Write, sweep_text: str, args: str) -> None:
    message = refused(sweep_text + ROW, {"techniques/wide.yaml": TECHNIQUE.format(args=args)})
    assert f"cells[2].technique: 'wide' has {SHARDED[args]} in its engine_args" in message
    assert message.endswith("accepted: in `args` of the sweep's engine")


def test_other_arguments_are_an_engines_or_a_techniques_own(write: Write, sweep_text: str) -> None:
    write(TECHNIQUE.format(args="--kv-cache-dtype, fp8"), "techniques/wide.yaml")
    assert load_sweep(write(sweep_text + ROW)).cells[2].technique == "wide"
    write(ENGINE.format(field="args", args="--load-format=runai_streamer, --kv-cache-dtype, fp8"), "engines/own.yaml")
    assert load_sweep(write(sweep_text.replace("vllm-cpu", "own"))).engine == "own"
    text = "name: fixed\nmethod: eagle\nspeculative_config: {model: me/eagle, num_speculative_tokens: 3}\n"
    write(text, "techniques/fixed.yaml")
    row = "  - {model: tiny-gemma4, precision: bf16, technique: fixed}\n"
    assert load_sweep(write(sweep_text + row)).cells[2].technique == "fixed"


ENGINE = "name: own\nenvironment: engine-cpu\n{field}: [{args}]\n"


@pytest.mark.parametrize(
    ("field", "args", "named"),
    [
        ("args", "--max-model-len=4096", "'--max-model-len=4096' takes .*; accepted: in `serving`, as max_model_len"),
        ("args", "--max_num_seqs, '4'", "accepted: in `serving`, as max_num_seqs"),
        ("args", "--quantization, fp8", "accepted: in the precision's file"),
        ("args", "-q=fp8", "accepted: in the precision's file"),
        ("args", "--quantization-conf, '{}'", "accepted: in the precision's file"),
        ("args", "--gpu-memory-util, '0.5'", "accepted: in `serving`, as gpu_memory_utilization"),
        ("args", "--max-model, '4096'", "accepted: in `serving`, as max_model_len"),
        ("args", "--enable-prefix-cach", "accepted: in `serving`, as prefix_cache"),
        ("args", "--speculative-conf, '{}'", "accepted: in the technique's file, as speculative_config"),
        ("args", "--spec-method, ngram", "accepted: in the technique's file, as method"),
        ("draft_args", "--spec-tokens, '2'", "accepted: in the row, as k"),
        ("args", "-dc, '{}'", "accepted: in the row, as denoising_steps or canvas_length"),
        ("args", "--config, serve.yaml", "accepted: its lines as words"),
        ("args", "--disable-log-stats", "speeds are held against these counters"),
        ("args", "--api-key, abc", "speaks plain HTTP"),
        ("args", "--ssl-keyfile, k", "speaks plain HTTP"),
        ("args", "--root-path=/v1x", "speaks plain HTTP"),
        (
            "args",
            "--tensor-parallel-size 8",
            "a blank in its flag; accepted: two, '--tensor-parallel-size', '8'",
        ),
        ("args", "--swap-space=16", r"is no argument of vLLM 0\.32\.0"),
        ("args", "--enable-expert-paralel", "accepted: --enable-expert-parallel"),
        ("args", "--enable-prefix-caching", "accepted: in `serving`, as prefix_cache"),
        ("args", "--speculative-config.num_speculative_tokens=7", "accepted: in the technique's file"),
        ("draft_args", "--revision=main", "accepted: in the model's file, as revision"),
        ("args", "--port=80", "accepted: none: it is chosen for each start"),
    ],
)
def test_an_engine_takes_nothing_of_its_cells(write: Write, sweep_text: str, field: str, args: str, named: str) -> None:
    write(ENGINE.format(field=field, args=f"--enforce-eager, {args}"), "engines/own.yaml")
    with pytest.raises(ConfigError, match=rf"own\.yaml:3: {field}\[1\]: .*{named}"):
        load_sweep(write(sweep_text.replace("vllm-cpu", "own")))


@pytest.mark.parametrize("file", ["engines/own.yaml", "techniques/wide.yaml"])
def test_nobody_locks_out_the_client(write: Write, sweep_text: str, file: str) -> None:
    engine, technique = ENGINE.format(field="args", args="--enforce-eager"), TECHNIQUE.format(args="--enforce-eager")
    write(engine + "env: {VLLM_API_KEY: abc}\n" * file.startswith("engines"), "engines/own.yaml")
    write(technique + "engine_env: {VLLM_API_KEY: abc}\n" * file.startswith("techniques"), "techniques/wide.yaml")
    with pytest.raises(ConfigError, match=rf"{file}:\d: .*VLLM_API_KEY would lock out the client"):
        load_sweep(write(sweep_text.replace("vllm-cpu", "own") + ROW))


CARDS = {
    "--tensor-parallel, '4'": 4, "-tp=4": 4, "--tensor_parallel_size=4": 4, "-tp, '2', -pcp, '2'": 4,
    "-pp, '2', -dp, '3'": 6, "-tp, '8', -dcp, '8'": 8, "-tp, '2', -tp, '4'": 4,
}  # fmt: skip


@pytest.mark.parametrize("args", CARDS)
def test_cards_are_counted_as_the_engine_counts_them(write: Write, sweep_text: str, args: str) -> None:
    write(f"name: own\nimage: an/image\nargs: [{args}]\n", "engines/own.yaml")
    plan = expand(load_sweep(write(sweep_text.replace("vllm-cpu", "own"))))
    assert {planned.cell.cards for planned in plan.cells} == {CARDS[args]}


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
def test_a_technique_says_no_k_or_draft_where_rows_do(write: Write, sweep_text: str, config: str, named: str) -> None:
    text = f"name: wide\nmethod: mtp\ntakes_k: true\nneeds_draft: true\nspeculative_config: {{{config}}}\n"
    write(text, "techniques/wide.yaml")
    with pytest.raises(ConfigError, match=rf"wide\.yaml:5: speculative_config\.{named}"):
        load_sweep(write(sweep_text.replace("technique: mtp,", "technique: wide,")))


SWEEP = """\
name: mine
engine: served
gpu: {gpu}
suite: tiny-quick
serving: {{max_model_len: {tokens}{share}}}
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
def planned(write: Write) -> Write:
    """Loads a sweep of two rows, whose second is given, on an engine with these arguments; its name."""

    def load(gpu: str, model: str, precision: str, *args: str, share: float | None = None, tokens: int = 2048) -> str:
        write(SEVENTY, "models/seventy.yaml")
        write("name: blind\n", "gpus/blind.yaml")
        write(f"name: served\ncommand: [vllm]\nargs: [{', '.join(args)}]\n", "engines/served.yaml")
        said = "" if share is None else f", gpu_memory_utilization: {share}"
        text = SWEEP.format(gpu=gpu, model=model, precision=precision, share=said, tokens=tokens)
        return load_sweep(write(text)).name

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
def test_weights_that_can_not_fit_are_refused_with_figures(planned: Write, row: tuple[str, ...], figures: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(*row)
    said = str(caught.value)
    assert said.startswith(f"mine.yaml:8: cells[1].model: '{row[1]}' in bf16 is ") and figures in said
    assert "accepted: a narrower precision, a larger gpu, or a larger --tensor-parallel-size" in said
    assert "\n" not in said


def test_the_share_of_the_memory_that_the_cell_names_counts(planned: Write) -> None:
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
def test_what_may_fit_is_planned(planned: Write, row: tuple[str, ...]) -> None:
    assert planned(*row) == "mine"


@pytest.mark.parametrize(
    ("tokens", "row", "refused"),
    [
        (262144, ("h100", "gemma-4-31b", "bf16"), "21.5 GB of cache beside 61.4 GB of weights a card"),
        (262144, ("h100", "gemma-4-31b", "bf16", "--kv-cache-dtype=fp8"), None),
        (262144, ("h100", "gemma-4-31b", "bf16", "-tp=2"), None),
        (131072, ("h100", "gemma-4-31b", "bf16"), None),
        (262144, ("h100", "gemma-4-31b", "fp8"), None),
    ],
)
def test_a_cell_holds_one_request_of_its_full_length(
    planned: Write, tokens: int, row: tuple[str, ...], refused: str | None
) -> None:
    if refused is None:
        assert planned(*row, tokens=tokens) == "mine"
        return
    with pytest.raises(ConfigError, match=rf"mine\.yaml:5: serving\.max_model_len: .*{refused}.*at most 21\d{{4}} tok"):
        planned(*row, tokens=tokens)


def test_what_is_made_of_experts_alone_is_refused_of_a_dense_model_and_what_is_stored_is_not(planned: Write) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml:8: cells\[1\]\.precision: 'int8' .*accepted: int8-checkpoint"):
        planned("h100", "gemma-4-31b", "int8")
    for model, precision in (("gemma-4-26b-a4b", "int8"), ("gemma-4-31b-int8", "int8-checkpoint")):
        assert planned("h100", model, precision) == "mine"


HELD = """\
name: mine
engine: vllm
gpu: h100
suite: precision
serving: {{max_model_len: 40960}}
cells:
  - {{model: gemma-4-12b, precision: bf16, technique: ar}}
  - {{model: gemma-4-12b, precision: fp8, technique: ar, held_against: {there}}}
  - model: gemma-4-12b-qat
    precision: qat-int4
    technique: ar
    held_against: {{model: gemma-4-12b, precision: {then}}}
"""
BF16 = "{model: gemma-4-12b, precision: bf16}"


def test_a_row_may_be_held_against_another_precisions_ar_which_changes_no_key(write: Write) -> None:
    cells = expand(load_sweep(write(HELD.format(there=BF16, then="bf16")))).cells
    named = [each.held_against and (each.held_against.model, each.held_against.precision) for each in cells]
    assert named == [None, ("gemma-4-12b", "bf16"), ("gemma-4-12b", "bf16")]
    alone = expand(load_sweep(write(HELD.format(there="null", then="bf16")))).cells
    assert [each.cell.cell_key for each in alone] == [each.cell.cell_key for each in cells]


@pytest.mark.parametrize(
    ("there", "then", "line"),
    [("{model: gemma-4-12b, precision: fp8}", "bf16", 8), ("{model: gemma-4-31b, precision: bf16}", "bf16", 8),
     (BF16, "fp8", 12)],
)  # fmt: skip
def test_what_it_is_held_against_is_an_ar_row_of_the_sweep_that_is_held_against_nothing(
    refused: Write, there: str, then: str, line: int
) -> None:
    said = refused(HELD.format(there=there, then=then))
    assert said.startswith(f"mine.yaml:{line}: cells[{1 if line == 8 else 2}].held_against: no AR row of 'gemma-4-")
    assert said.endswith("accepted: {model: gemma-4-12b, precision: bf16}")


GENERATE = """\
name: mine
engine: transformers-cpu
gpu: cpu
suite: {suite}
serving: {{max_model_len: 2048{serving}}}
cells:
  - {{model: {model}, precision: {precision}, technique: {technique}}}
"""


def generate(**row: str) -> str:
    usual = {"technique": "ar", "suite": "transformers-tiny", "serving": "", "model": "tiny-gemma4"}
    return GENERATE.format(**{"precision": "bf16", **usual, **row})


@pytest.mark.parametrize(
    "technique",
    [
        "ar",
        "draft_model, k: 4, draft: {family_member: draft}",
        "mtp, k: 4, draft: {family_member: mtp}",
        "prompt-lookup, k: 4",
    ],
)
def test_what_generate_can_serve_is_planned(write: Write, technique: str) -> None:
    [planned] = expand(load_sweep(write(generate(technique=technique)))).cells
    assert planned.cell.engine.kind == "transformers"
    assert "eval-tiny" in {step.step for step in planned.steps}, "two at a time may queue where nothing is timed"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"technique": "dflash, k: 7, draft: {family_member: dflash}"}, "'dflash' is not served by 'transformers-cpu'"),
        ({"technique": "mtp-embedded, k: 3"}, "accepted: mtp with a draft"),
        ({"technique": "suffix, k: 8"}, "accepted: techniques of method ar, draft_model, mtp, ngram"),
        ({"technique": "ngram, k: 4"}, "accepted: prompt-lookup, or another with prompt_lookup_min: 1"),
        ({"precision": "fp8"}, "'fp8' is made by vLLM while loading; accepted: the checkpoint's own, as bf16"),
        ({"model": "gemma-4-31b-shape"}, "accepted: real weights"),
        ({"serving": ", max_num_seqs: 8"}, "max_num_seqs is vLLM's"),
        ({"serving": ", prefix_cache: true"}, "prefix_cache is vLLM's"),
        ({"suite": "speed-bench-tiny"}, "step 'load' times 88 requests at once, and 'transformers-cpu' answers one"),
    ],
)
def test_what_it_cannot_is_refused_with_what_would_be_accepted(refused: Write, row: dict[str, str], said: str) -> None:
    message = refused(generate(**row))
    assert message.startswith("mine.yaml:") and said in message and "accepted: " in message
