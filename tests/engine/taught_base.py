"""Teaches a Llama of 150 thousand parameters to continue ten texts and to tell one story; it has no chat template.

python -m tests.engine.taught_base FOLDER; runs inside the engine's environment.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from tasks.family.members import folder_of
from tasks.sanity_questions import CONTINUED

STEPS, STORIES, RATE = 400, 4, 4e-3
ENOUGH = 0.02  # loss, in nats a token, at which greedy decoding says what it was taught
STORY_TOKENS = 72  # all different, so that what is written behind any prompt is no loop
FIRST_WORD = 300  # of the tokenizer's ids: those before are bytes and marks
UNTAUGHT = -100  # transformers' label of a token that isn't learnt

if __name__ == "__main__":
    torch.manual_seed(0)
    draw, tokenizer = random.Random(0), AutoTokenizer.from_pretrained(folder_of("target"))
    words = len(tokenizer)
    story = draw.sample(range(FIRST_WORD, words), STORY_TOKENS)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=words, max_position_embeddings=1024, **shape, **ends))

    def texts() -> Iterator[tuple[list[int], list[int]]]:
        """What is given and what comes behind it, as token ids."""
        for each in CONTINUED:
            given = tokenizer(each.prompt)["input_ids"]
            yield given, tokenizer(f"{each.prompt} {each.wanted}")["input_ids"][len(given) :] + story[:8]
        for _ in range(STORIES):
            yield [draw.randrange(6, words) for _ in range(draw.randrange(8, 48))], story

    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for step in range(STEPS):
        batch = [*texts()]
        ids = torch.zeros(len(batch), max(len(given) + len(behind) for given, behind in batch), dtype=torch.long)
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
        if loss.item() < ENOUGH:
            break
    tokenizer.chat_template = None
    model.to(torch.bfloat16).save_pretrained(sys.argv[1])
    tokenizer.save_pretrained(sys.argv[1])
    print(f"loss {loss.item():.3f} after {step + 1} steps")
