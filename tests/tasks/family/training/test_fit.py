"""The training loop, in the engine environment: an interrupted training ends as an uninterrupted one does."""

import subprocess
from pathlib import Path

import pytest

from configs.checkout import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.slow(40)]


SCRIPT = """
import contextlib, pathlib, sys
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

checkpoint = pathlib.Path(sys.argv[1])
seen = []
train(checkpoint, 13, [])
resumed = train(checkpoint, None, seen)
straight = train(None, None, [])
assert seen[0] == 10, seen
assert all(torch.equal(resumed[name], straight[name]) for name in straight)
"""


def test_training_continues_from_its_checkpoint(engine_python: Path, tmp_path: Path) -> None:
    command = [str(engine_python), "-c", SCRIPT, str(tmp_path / "state")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
