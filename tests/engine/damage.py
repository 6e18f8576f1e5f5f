"""Copies a checkpoint and exchanges words in its embeddings; runs inside the engine's environment.

python damage.py CHECKPOINT COPY WORD ITS_TWIN [WORD ITS_TWIN ...]
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

if __name__ == "__main__":
    source, copy = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.copytree(source, copy)
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    here = [tokenizer.token_to_id(f"Ġ{word}") for word in sys.argv[3:]]
    there = [here[place ^ 1] for place in range(len(here))]
    weights = load_file(source / "model.safetensors")
    embedding = next(tensor for name, tensor in weights.items() if name.endswith("embed_tokens.weight"))
    embedding[here] = embedding[there]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
