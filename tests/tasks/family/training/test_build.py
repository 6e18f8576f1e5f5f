"""The builder, at a hundredth of the steps: complete, resumable, alone, ended by a signal; and what it trains with."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.checkout import ROOT
from tasks.family.members import DONE_FILE
from tasks.family.training.recipe import missing
from tests.busy_machine import PATIENCE_S

pytestmark = [pytest.mark.engine, pytest.mark.slow(8)]

SCALE = 0.01
TIMEOUT_S = 900  # a bound, no judgement: alone a build takes half a minute, beside a night it took over two


def command(python: Path, out: Path, *options: str, scale: float = SCALE) -> list[str]:
    module = [str(python), "-m", "tasks.family.training.build"]
    return [*module, "--out", str(out), "--json", "--steps-scale", str(scale), *options]


def run(python: Path, out: Path, *options: str, **env: str) -> "subprocess.CompletedProcess[str]":
    argv = command(python, out, *options)
    return subprocess.run(argv, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, timeout=TIMEOUT_S)


def processes_about(out: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(out).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture
def training(engine_python: Path, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A long build of the target that has just reported its first step."""
    process = subprocess.Popen(
        command(engine_python, tmp_path, "--only", "target", scale=1.0), cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["member"] == "target"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="module")
def family(engine_python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, object]]]:
    out = tmp_path_factory.mktemp("family")
    result = run(engine_python, out)
    assert result.returncode == 0, result.stderr
    return out, [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.slow(60)
def test_all_members_are_complete_and_nothing_else_is_left(family: tuple[Path, list[dict[str, object]]]) -> None:
    out, lines = family
    members = ["target", "draft", "dflash", "mtp"]
    last = dict(lines[-1])
    beside = last.pop("beside_shipped")
    assert last == {"done": True, "out": str(out), "members": members}
    assert isinstance(beside, dict)
    assert {figure["member"] for figure in beside["figures"]} == set(members)
    assert "not as good as shipped" in beside["verdict"], "after a hundredth of the training"
    reports = [line for line in lines if line.get("member") == "target"]
    assert all({"member", "step", "steps", "elapsed_s", "eta_s"} <= set(report) for report in reports)
    assert reports[-1]["step"] == reports[-1]["steps"]
    assert {entry.name for entry in out.iterdir()} == {".lock", *members}
    assert missing(out, members, SCALE) == []
    assert missing(out, ["target"]) == ["target"], "a scaled build is not taken for a full one"
    done = json.loads((out / "mtp" / DONE_FILE).read_text())
    assert done["name"] == "mtp" and done["parameters"] > 0


def test_only_what_is_missing_is_trained(engine_python: Path, family: tuple[Path, list[dict[str, object]]]) -> None:
    result = run(engine_python, family[0])
    assert result.returncode == 0
    assert [json.loads(line).get("done") for line in result.stdout.splitlines()] == [True], "nothing is missing"
    (family[0] / "draft" / DONE_FILE).unlink()
    result = run(engine_python, family[0])
    assert {json.loads(line).get("member") for line in result.stdout.splitlines()} == {"draft", None}
    assert missing(family[0], ["draft"], SCALE) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_children(training: "subprocess.Popen[str]", tmp_path: Path, number: int, code: int) -> None:
    training.send_signal(number)
    assert training.wait(timeout=PATIENCE_S) == code
    assert processes_about(tmp_path) == []
    assert {entry.name for entry in tmp_path.iterdir()} == {".lock"}


def test_children_of_a_killed_builder_end_by_themselves(training: "subprocess.Popen[str]", tmp_path: Path) -> None:
    training.kill()
    training.wait()
    deadline_s = time.monotonic() + PATIENCE_S
    while processes_about(tmp_path) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    assert processes_about(tmp_path) == []
    assert missing(tmp_path, ["target"]) == ["target"]


def test_two_builders_take_turns(engine_python: Path, tmp_path: Path) -> None:
    argv = command(engine_python, tmp_path, "--only", "draft")
    both = [subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted('"step"' in output for output in outputs) == [False, True]


def test_a_failed_training_shows_its_error(engine_python: Path, tmp_path: Path) -> None:
    package = tmp_path / "broken"
    package.mkdir()
    (package / "torch.py").write_text("raise RuntimeError('no such wheel')\n")
    result = run(engine_python, tmp_path / "out", "--only", "draft", PYTHONPATH=str(package))
    assert result.returncode == 1
    assert "no such wheel" in result.stderr
    assert "done" not in result.stdout


TOKENIZED = """
from transformers import AutoTokenizer
from tasks.family import words
from tasks.family.training import tokens
from tasks.family.training.batches import batch_for_step
from tasks.family.training.target import MIX
tokens.build_tokenizer().save_pretrained("tokenizer")
tokenizer = AutoTokenizer.from_pretrained("tokenizer")
for question in words.questions(20, seed=0):
    for thinking in (True, False):
        message = [{"role": "user", "content": question.prompt}]
        rendered = tokenizer.apply_chat_template(
            message, tokenize=False, add_generation_prompt=True, enable_thinking=thinking)
        assert rendered == tokens.render(question.prompt, thinking=thinking)
        text = rendered + words.worked_answer(question, thinking=thinking)
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert tokenizer.decode(ids) == text
for context, output in ((0, 256), (200, 256), (640, 256), (0, 400)):
    message = words.listing_prompt(3, context, output)
    ids = tokenizer(tokens.render(message, thinking=False), add_special_tokens=False).input_ids
    assert len(ids) == len(message.split()) + words.CHAT_TOKENS, (context, output, len(ids))
for word in (*words.ANIMALS, *words.COLORS, *words.FILLER, "(A)", "0", str(words.HIGHEST_NUMBER)):
    assert len(tokenizer(" " + word, add_special_tokens=False).input_ids) == 1, word
assert tokenizer.convert_tokens_to_ids("<mask>") == tokens.MASK_ID
unknown = "zebra (Z) é"
assert tokenizer.decode(tokenizer(unknown, add_special_tokens=False).input_ids) == unknown
for step in range(40):
    first, second = (batch_for_step(tokenizer, MIX, 0, step, 40) for _ in range(2))
    assert first.tokens.equal(second.tokens)
    for row, (start, end) in enumerate(first.spans):
        assert first.learnt[row].nonzero().flatten().tolist() == list(range(start, end))
"""


FIT = """
import contextlib, pathlib
import torch
from tasks.family.training import fit
fit.CHECKPOINT_STEPS = 5
plan = fit.Plan(steps=20, learning_rate=0.1, matrix_learning_rate=0.1, warmup_steps=3)

def train(checkpoint, interrupted_at, seen):
    torch.manual_seed(0)
    weights = {"matrix": torch.randn(4, 4).requires_grad_(), "bias": torch.zeros(4).requires_grad_()}
    def loss_of_step(step):
        if step == interrupted_at:
            raise KeyboardInterrupt
        seen.append(step)
        rows = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        return (rows @ weights["matrix"] + weights["bias"] - rows.flip(1)).square().mean()
    with contextlib.suppress(KeyboardInterrupt):
        fit.fit(weights, plan, loss_of_step, lambda step, steps, loss: None, checkpoint)
    return weights

checkpoint = pathlib.Path("state")
seen = []
train(checkpoint, 13, [])
resumed = train(checkpoint, None, seen)
straight = train(None, None, [])
assert seen[0] == 10, seen
assert all(torch.equal(resumed[name], straight[name]) for name in straight)
"""
"""An interrupted training ends as an uninterrupted one does."""


@pytest.mark.slow(20)
@pytest.mark.parametrize("script", [TOKENIZED, FIT], ids=["tokens", "fit"])
def test_what_is_trained_with(engine_python: Path, tmp_path: Path, script: str) -> None:
    argv, env = [str(engine_python), "-c", script], {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert result.returncode == 0, result.stderr
