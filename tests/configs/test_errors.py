"""Every mistake in a sweep's file is one line that says where it is and what would be accepted."""

from pathlib import Path

import pytest

from configs.errors import SpecsweepError, leave
from configs.load import ConfigError, load_model, load_suite, load_sweep
from tests.configs.conftest import Write

AR = "  - {model: tiny-gemma4, precision: bf16, technique: ar}"

MISTAKES = {
    "unknown key": ("spot: false", "spott: false", ["mine.yaml:6", "spott", "unknown key", "'spot'", "max_attempts"]),
    "unknown key in a cell": ("technique: ar}", "technique: ar, drat: 1}",
        ["mine.yaml:8", "cells[0].drat", "'draft'"]),
    "misspelt key": ("cells:", "cels:",
        ["mine.yaml:7: cels: unknown key; accepted: name, engine", ", cells (did you mean 'cells'?)"]),
    "misspelt key in a cell": ("precision: bf16", "precison: bf16",
        ["mine.yaml:8: cells[0].precison: unknown key; accepted: model, ", "(did you mean 'precision'?)"]),
    "misspelt key in the cloud": ("spot: false", "cloud: {tsk: h100-spot}",
        ["mine.yaml:6: cloud.tsk: unknown key; accepted: task, ", "(did you mean 'task'?)"]),
    "wrong type": ("k: 4", 'k: "4"', ["mine.yaml:9", "cells[1].k", '"4"', "whole number"]),
    "yes for a number": ("k: 4", "k: yes", ["mine.yaml:9", "cells[1].k", "true", "whole number"]),
    "number for a text": ("gpu: cpu", "gpu: 100", ["mine.yaml:3", "gpu", "100", "text", "quotes"]),
    "out of range": ("k: 4", "k: 0", ["mine.yaml:9", "cells[1].k", "0", "greater than 0"]),
    "missing key": ("gpu: cpu\n", "", ["mine.yaml:1", "gpu", "missing", "add it"]),
    "unknown model": ("model: tiny-gemma4", "model: tiny-gemma", ["cells[0].model", "'tiny-gemma'", "did you mean"]),
    "unknown technique": ("technique: mtp", "technique: mpt",
        ["mine.yaml:9", "cells[1].technique", "dflash", "'mtp'"]),
    "unknown precision": ("precision: bf16", "precision: bf61", ["cells[0].precision", "'bf61'", "nvfp4", "'bf16'"]),
    "unknown engine": ("vllm-cpu", "vlm-cpu", ["mine.yaml:2", "engine", "'vlm-cpu'", "did you mean 'vllm-cpu'?"]),
    "unknown gpu": ("gpu: cpu", "gpu: h10", ["mine.yaml:3", "gpu", "'h10'", "gb10", "h200"]),
    "card of an engine without one": ("gpu: cpu", "gpu: auto",
        ["mine.yaml:3: gpu: 'auto' is a card, and 'vllm-cpu' uses none; accepted: cpu"]),
    "another's card for an engine without one": ("gpu: cpu", "gpu: h100\ncloud: {task: h100-spot}",
        ["mine.yaml:3: gpu: 'h100' is a card, and 'vllm-cpu' uses none; accepted: cpu"]),
    "unknown suite": ("suite: tiny-quick", "suite: quick", ["mine.yaml:4", "suite", "'quick'", "demo", "tiny-quick"]),
    "K without use": ("technique: ar}", "technique: ar, k: 2}", ["mine.yaml:8", "cells[0].k", "2", "'ar' has no K"]),
    "no K": ("k: 4, ", "", ["mine.yaml:9", "cells[1].k", "missing", "'mtp' needs it", "1, 2, 3"]),
    "no draft": (", draft: {family_member: mtp}", "", ["mine.yaml:9", "cells[1].draft", "missing", "hub_id"]),
    "draft without use": ("technique: ar}", "technique: ar, draft: {hub_id: a/b}}",
        ["cells[0].draft", "accepted: no draft"]),
    "draft from nowhere": ("{family_member: mtp}", "{}", ["mine.yaml:9", "cells[1].draft", "neither", "exactly one"]),
    "same cell twice": (AR, f"{AR}\n{AR}", ["mine.yaml:9", "cells[1]", "bf16 ar", "on line 8"]),
    "same key twice": ("gpu: cpu", "gpu: cpu\ngpu: h100", ["mine.yaml:4", "gpu", "twice", "line 3"]),
    "no room": ("max_model_len: 2048", "max_model_len: 300", ["mine.yaml:5", "max_model_len", "300", "320 or more"]),
    "no serving": ("serving: {max_model_len: 2048}\n", "", ["mine.yaml:7", "cells[0].serving", "missing", "sweep"]),
    "bad name": ("name: mine", "name: My Sweep", ["mine.yaml:1", "name", "'My Sweep'", "small letters"]),
    "list for a mapping": ("{max_model_len: 2048}", "[2048]", ["mine.yaml:5", "serving", "[2048]", "a mapping"]),
    "nothing for a list": (AR, "  - ", ["mine.yaml:8", "cells[0]", "null", "a mapping"]),
    "no number": ("k: 4", "k: .nan", ["mine.yaml:9: cells[1].k: nan isn't accepted; accepted: a finite number"]),
    "an endless number": ("spot: false", "cloud: {task: h100-spot, wait_h: .inf}",
        ["mine.yaml:6: cloud.wait_h: inf isn't accepted; accepted: a finite number"]),
    "a date for a key": ("technique: ar}", "technique: ar, 2026-11-25: x}",
        ["mine.yaml:8: cells[0].2026-11-25: the key '2026-11-25' is no text; accepted: a key in quotes"]),
    "no blank after a colon": ("{model: tiny", "{model:tiny",
        ["mine.yaml:8: cells[0].model:tiny-gemma4: a blank is missing after the colon; write `model: tiny-gemma4`"]),
    "no blank outside a mapping": ("engine: ", "engine:",
        ["mine.yaml:3: not valid YAML", "from line 2 on; write `engine: vllm-cpu`, with a blank"]),
    "a mapping that doesn't end": ("technique: ar}", "technique: ar", ["not valid YAML", "from line 8 on"]),
    "a task without a file": ("spot: false", "cloud: {task: h100-sopt}",
        ["mine.yaml:6: cloud.task: no file for 'h100-sopt'; accepted: ", "(did you mean 'h100-spot'?)"]),
    "longer than the model": ("max_model_len: 2048", "max_model_len: 400960",
        ["mine.yaml:5: serving.max_model_len: 400960 is longer than the 4096 tokens that 'tiny-gemma4' was made for;",
         "accepted: up to 4096"]),
    "a model by its name on the hub": ("model: tiny-gemma4", "model: google/gemma-4-12B-it",
        ["cells[0].model", "did you mean 'gemma-4-12b'?"]),
    "a model by a name like that": ("model: tiny-gemma4", "model: Qwen/Qwen-3.6-27B",
        ["cells[0].model", "did you mean 'qwen3.6-27b'?"]),
    "a gpu by its name in the catalogue": ("gpu: cpu", "gpu: H100-80GB", ["gpu", "did you mean 'h100'?"]),
    "a gpu by its name by the driver": ("gpu: cpu", "gpu: NVIDIA L40S", ["gpu", "did you mean 'l40s'?"]),
    "a gpu by the beginning of several": ("gpu: cpu", "gpu: NVIDIA H100", ["did you mean 'h100' or 'h100-nvl' or "]),
    "broken YAML": ("cells:", "cells: [", ["mine.yaml:", "not valid YAML"]),
    "impossible date": ("name: mine", "name: 2026-13-45", ["mine.yaml", "not valid YAML", "month"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_a_line_with_place_and_remedy(write: Write, refused: Write, sweep_text: str, mistake: str) -> None:
    right, wrong, parts = MISTAKES[mistake]
    sound = sweep_text.replace("cells:", "spot: false\ncells:")
    assert load_sweep(write(sound)).name == "mine"
    assert right in sound
    message = refused(sound.replace(right, wrong, 1))
    assert [part for part in parts if part not in message] == [], message


@pytest.mark.parametrize(
    ("spoilt", "others"),
    [
        ({"cells:": "cels:"}, ""),
        ({"cells:": "cels:", "engine:": "engin:"}, " (and 1 more in this file)"),
        ({"spot: false": "spot: 5", "cells:": "cels:"}, " (and 1 more in this file)"),
        ({"precision: bf16": "precison: bf16"}, ""),
        ({"precision: bf16": "precison: bf16", "k: 4": "k: four"}, " (and 1 more in this file)"),
    ],
)
def test_a_misspelt_key_comes_first_once(refused: Write, sweep_text: str, spoilt: dict[str, str], others: str) -> None:
    text = sweep_text.replace("cells:", "spot: false\ncells:")
    for right, wrong in spoilt.items():
        text = text.replace(right, wrong, 1)
    message = refused(text)
    assert "(did you mean '" in message and message.endswith(f"'?){others}")


FILES = {
    "empty": ("", ["mine.yaml:1", "empty", "accepted"]),
    "only a comment": ("# nothing\n", ["mine.yaml:1", "empty", "accepted"]),
    "a list": ("- a\n- b\n", ["mine.yaml:1", "not a mapping", "accepted"]),
    "itself": ("name: &a [*a]\n", ["mine.yaml:1", "name[0]", "alias"]),
    "two documents": ("a: 1\n---\nb: 2\n", ["mine.yaml:2", "not valid YAML"]),
    "a control character": ("name: mine\ngpu: \a\n", ["mine.yaml:2", "U+0007", "remove it"]),
    "UTF-16 without its mark": ("".join(f"{each}\0" for each in "name: mine\n"), ["mine.yaml:1", "U+0000", "as UTF-8"]),
    "nested for ever": ("name: " + "[" * 9999, ["mine.yaml", "too deeply nested"]),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_holds_no_sweep_says_so(refused: Write, kind: str) -> None:
    text, parts = FILES[kind]
    message = refused(text)
    assert all(part in message for part in parts), message


def test_a_file_that_can_not_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml: can't be read \(No such file or directory\); accepted"):
        load_sweep(str(tmp_path / "gone.yaml"))
    (tmp_path / "latin.yaml").write_bytes("name: é\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.yaml: isn't UTF-8"):
        load_sweep(str(tmp_path / "latin.yaml"))


def test_a_name_that_is_unknown_lists_the_names_and_can_not_leave_its_folder(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"sweeps: no file for 'ful'; accepted: demo, .*\(did you mean 'full'\?\)"):
        load_sweep("ful")
    with pytest.raises(ConfigError, match="no file for"):
        load_model("../gpus/h100")
    write("name: mine-suite\nsteps: [{step: smoke}]\n", "suites/mine-suite.yaml")
    with pytest.raises(ConfigError, match="no file for 'mine-suite'"):
        load_suite("mine-suite")  # a user's own is unknown to the shipped ones


SUITES = {
    "too few requests": ("requests: 16", "requests: 8",
        ["mine-suite.yaml:5", "conditions[0].requests", "8 requests have no steady state", "16 or more"]),
    "nothing in a list": (
        "[\n      {name: c4, context_tokens: 9, output_tokens: 9, concurrency: 4, requests: 16}]", "[]",
        ["mine-suite.yaml:4: steps[1].conditions: [] isn't accepted; accepted: a list of at least 1 item"]),
    "repeats of no width": ("requests: 16", "requests: 16, repeats: {min: 3, max: 15}",
        ["mine-suite.yaml:5: steps[1].conditions[0].repeats: ", "accepted: `within` beside `min` and `max`, as 2%"]),
    "repeats within more than everything": ("requests: 16", "requests: 16, repeats: {min: 3, max: 15, within: 2}",
        ["mine-suite.yaml:5", "repeats.within: 2 isn't accepted; accepted: a share of the rate, as 2% or 0.02"]),
    "fewer repeats at most than at least": ("requests: 16", "requests: 16, repeats: {min: 9, max: 5, within: 2%}",
        ["mine-suite.yaml:5", "[0].repeats: ", '"min": 9', "accepted: `min` from 2, ", "up to `max`"]),
    "repeats as a text": ("requests: 16", 'requests: 16, repeats: "5"',
        ["[0].repeats: ", "accepted: a whole number from 1, or {min: 3, max: 15, within: 2%}"]),
    "misspelt key in repeats": ("requests: 16", "requests: 16, repeats: {min: 3, maxx: 15, within: 2%}",
        ["mine-suite.yaml:5", "[0].repeats.maxx: unknown key; accepted: min, max, within", "did you mean 'max'?"]),
    "step twice": ("  - {step: smoke}", "  - {step: smoke}\n  - {step: smoke}",
        ["mine-suite.yaml:4", "'smoke'", "line 3"]),
    "unknown step": ("step: smoke", "step: smoek", ["mine-suite.yaml:3", "'smoek'", "throughput", "'smoke'"]),
    "no step": ("{step: smoke}", "{items: 5}", ["mine-suite.yaml:3", "steps[0]", "'step' is missing"]),
    "unknown key in a condition": ("requests: 16", "request: 16",
        ["conditions[0].request", "unknown key", "'requests'"]),
    "misspelt key in a step": ("prompts: listing", "promts: listing",
        ["mine-suite.yaml:4: steps[1].promts: unknown key; ", "accepted: step, prompts, conditions (did you mean"]),
    "misspelt step": ("{step: smoke}", "{stp: smoke}",
        ["mine-suite.yaml:3: steps[0].stp: unknown key; accepted: step, ", "(did you mean 'step'?)"]),
    "misspelt key in a condition": ("output_tokens: 9", "outputs_token: 9",
        ["mine-suite.yaml:5: steps[1].conditions[0].outputs_token: unknown key; ", "(did you mean 'output_tokens'?)"]),
    "other name": ("name: mine-suite", "name: other", ["mine-suite.yaml:1", "'other'", "accepted: mine-suite"]),
}  # fmt: skip


PROMPTED = {
    "throughput": "conditions: [{name: c1, context_tokens: 9, output_tokens: 9}]",
    "parity": "context_tokens: 9",
    "depth": "depths: [0]",
    "memory": "output_tokens: 9",
}


@pytest.mark.parametrize("step", PROMPTED)
def test_prompts_of_a_kind_that_nobody_makes_are_refused(write: Write, sweep_text: str, step: str) -> None:
    text = f"name: mine-suite\nsteps:\n  - {{step: {step}, prompts: proes, {PROMPTED[step]}}}\n"
    sweep = write(sweep_text.replace("suite: tiny-quick", "suite: mine-suite"))
    write(text, "suites/mine-suite.yaml")
    said = r"mine-suite\.yaml:3: steps\[0\]\.prompts: 'proes' isn't known; accepted: prose, listing, .*mean 'prose'"
    with pytest.raises(ConfigError, match=said):
        load_sweep(sweep)


@pytest.mark.parametrize("mistake", SUITES)
def test_a_mistake_in_a_suite_points_into_it(write: Write, refused: Write, sweep_text: str, mistake: str) -> None:
    suite = """\
name: mine-suite
steps:
  - {step: smoke}
  - {step: throughput, prompts: listing, conditions: [
      {name: c4, context_tokens: 9, output_tokens: 9, concurrency: 4, requests: 16}]}
"""
    sweep = sweep_text.replace("suite: tiny-quick", "suite: mine-suite")
    write(suite, "suites/mine-suite.yaml")
    assert load_sweep(write(sweep)).suite == "mine-suite"
    right, wrong, parts = SUITES[mistake]
    assert right in suite
    message = refused(sweep, {"suites/mine-suite.yaml": suite.replace(right, wrong, 1)})
    assert [part for part in parts if part not in message] == [], message
    assert " more in this file" not in message, "there is one mistake"


def test_an_error_leaves_a_command_as_a_line_and_an_exit_code(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SpecsweepError) as caught:
        load_sweep(write("name: mine\n", "empty.yaml"))
    assert leave("sweep", caught.value) == 1
    said = capsys.readouterr()
    assert said.err.startswith("sweep: empty.yaml:1: ") and said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("command: [bin/vllm]", "depends on where one stands; accepted: a path that begins with / or ~/"),
        ("command: [./vllm, --fast]", "depends on where one stands; accepted: a path that begins with / or ~/"),
        ("environment: venvs/vllm", "depends on where one stands; accepted: a path that begins with / or ~/"),
        ("command: []", "[] names no program; accepted: e.g. [vllm], or no command"),
        ("command: ['', serve]", "['', 'serve'] names no program; accepted: e.g. [vllm], or no command"),
    ],
)
def test_an_engine_that_can_not_be_started_is_refused(refused: Write, sweep_text: str, line: str, said: str) -> None:
    row = "  - {model: tiny-gemma4, precision: bf16, technique: suffix, k: 4, optional: true}\n"
    text = sweep_text.replace("engine: vllm-cpu", "engine: own") + row
    message = refused(text, {"engines/own.yaml": f"name: own\n{line}\n"})
    assert f"own.yaml:2: {line.partition(':')[0]}: " in message and said in message
