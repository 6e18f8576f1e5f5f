"""The tokenizer and the training rows, in the engine environment."""

import subprocess
from pathlib import Path

import pytest

from configs.checkout import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.slow(40)]


ROUND_TRIP = """
from transformers import AutoTokenizer
from tasks.family import words
from tasks.family.training import tokens
tokens.build_tokenizer().save_pretrained({folder!r})
tokenizer = AutoTokenizer.from_pretrained({folder!r})
"""

CHAT = """
for question in words.questions(20, seed=0):
    for thinking in (True, False):
        message = [{"role": "user", "content": question.prompt}]
        rendered = tokenizer.apply_chat_template(
            message, tokenize=False, add_generation_prompt=True, enable_thinking=thinking)
        assert rendered == tokens.render(question.prompt, thinking=thinking)
        text = rendered + words.worked_answer(question, thinking=thinking)
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert tokenizer.decode(ids) == text
"""

LENGTHS = """
for context, output in ((0, 256), (200, 256), (640, 256), (0, 400)):
    message = words.listing_prompt(3, context, output)
    ids = tokenizer(tokens.render(message, thinking=False), add_special_tokens=False).input_ids
    assert len(ids) == len(message.split()) + words.CHAT_TOKENS, (context, output, len(ids))
"""

WORDS = """
for word in (*words.ANIMALS, *words.COLORS, *words.FILLER, "(A)", "0", str(words.HIGHEST_NUMBER)):
    assert len(tokenizer(" " + word, add_special_tokens=False).input_ids) == 1, word
assert tokenizer.convert_tokens_to_ids("<mask>") == tokens.MASK_ID
unknown = "zebra (Z) é"
assert tokenizer.decode(tokenizer(unknown, add_special_tokens=False).input_ids) == unknown
"""

BATCHES = """
from tasks.family.training.batches import batch_for_step
from tasks.family.training.target import MIX
for step in range(40):
    first, second = (batch_for_step(tokenizer, MIX, 0, step, 40) for _ in range(2))
    assert first.tokens.equal(second.tokens)
    for row, (start, end) in enumerate(first.spans):
        assert first.learnt[row].nonzero().flatten().tolist() == list(range(start, end))
"""


@pytest.mark.parametrize("check", [CHAT, LENGTHS, WORDS, BATCHES], ids=["chat", "lengths", "words", "batches"])
def test_tokenizer(engine_python: Path, tmp_path: Path, check: str) -> None:
    script = ROUND_TRIP.format(folder=str(tmp_path)) + check
    result = subprocess.run([str(engine_python), "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
