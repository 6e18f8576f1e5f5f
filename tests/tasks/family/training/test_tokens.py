"""The tokenizer, the training rows and the training loop, in the engine environment."""

import os
import subprocess
from pathlib import Path

import pytest

from configs.checkout import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.slow(40)]


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


@pytest.mark.parametrize("script", [TOKENIZED, FIT], ids=["tokens", "fit"])
def test_what_is_trained_with(engine_python: Path, tmp_path: Path, script: str) -> None:
    argv, env = [str(engine_python), "-c", script], {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
