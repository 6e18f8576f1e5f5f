"""Makes a base model of the family's target: no chat template, and taught to continue ten texts and tell one story.

python -m tests.engine.taught_base FOLDER; runs inside the engine's environment.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tasks.family.members import folder_of
from tasks.family.training.saving import save
from tasks.sanity_questions import CONTINUED

STEPS, STORIES, RATE = 150, 6, 2e-3
STORY_TOKENS = 96  # all different, so that what is written behind any prompt is no loop
FIRST_WORD = 300  # of the tokenizer's ids: those before are bytes and marks
UNTAUGHT = -100  # transformers' label of a token that isn't learnt

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    torch.manual_seed(0)
    draw = random.Random(0)
    tokenizer = AutoTokenizer.from_pretrained(folder_of("target"))
    model = AutoModelForCausalLM.from_pretrained(folder_of("target"), dtype=torch.float32)
    story = draw.sample(range(FIRST_WORD, model.config.vocab_size), STORY_TOKENS)

    def texts() -> Iterator[tuple[list[int], list[int]]]:
        """What is given and what comes behind it, as token ids."""
        for each in CONTINUED:
            given = tokenizer(each.prompt)["input_ids"]
            yield given, tokenizer(f"{each.prompt} {each.wanted}")["input_ids"][len(given) :] + story[:8]
        for _ in range(STORIES):
            yield [draw.randrange(6, model.config.vocab_size) for _ in range(draw.randrange(8, 80))], story

    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for step in range(STEPS):
        batch = [*texts()]
        longest = max(len(given) + len(behind) for given, behind in batch)
        ids = torch.zeros(len(batch), longest, dtype=torch.long)
        labels = torch.full_like(ids, UNTAUGHT)
        for row, (given, behind) in enumerate(batch):
            ids[row, : len(given) + len(behind)] = torch.tensor(given + behind)
            labels[row, len(given) : len(given) + len(behind)] = torch.tensor(behind)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, 2 * (1 - step / STEPS))
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    tokenizer.chat_template = None
    save(model, tokenizer, folder)
    print(f"loss {loss.item():.3f}")
