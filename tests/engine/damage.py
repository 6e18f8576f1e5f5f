"""Copies a checkpoint and perturbs its embeddings; runs inside the engine's environment.

python damage.py CHECKPOINT COPY
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

NOISE = 0.25
"""Standard deviation of the noise over that of the weights; the target then answers seven of eight, down from all."""

if __name__ == "__main__":
    source, copy = Path(sys.argv[1]), Path(sys.argv[2])
    shutil.copytree(source, copy)
    weights = load_file(source / "model.safetensors")
    torch.manual_seed(1)
    for name, tensor in weights.items():
        if "embed" in name:
            weights[name] = (tensor + torch.randn_like(tensor) * tensor.std() * NOISE).contiguous()
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
