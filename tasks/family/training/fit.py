"""The training loop that every member shares.

Muon for the matrices of the layers, AdamW for embeddings and norms; warm-up, a constant rate, a linear end; a
checkpoint to go on from. Muon because copying list items appears sooner: after about 340 steps, where AdamW alone
needed 450 and lost the skill for 200 more when the lists grew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

Report = Callable[[int, int, float], None]
"""Called after every step with: steps done, steps in all, loss."""

CHECKPOINT_STEPS = 200

GRADIENT_NORM = 1.0
BETAS = (0.9, 0.98)
WEIGHT_DECAY = 0.01
FINAL_SHARE = 0.3
"""Share of the steps over which the learning rate falls to zero."""


@dataclass(frozen=True)
class Job:
    """What one training is asked to do.

    Attributes:
        out: Existing folder to save the checkpoint to.
        target: Folder of the trained target, for members that are trained on it.
        steps: Training steps.
        checkpoint: File to continue from and to keep state in; None for short trainings.
    """

    out: Path
    target: Path
    steps: int
    checkpoint: Path | None = None


@dataclass(frozen=True)
class Trained:
    """What a training came to, for `DONE`: the mean loss of the last 20 steps, and scores by name."""

    parameters: int
    loss: float
    scores: dict[str, float]


@dataclass(frozen=True)
class Plan:
    """How long and how fast to train.

    Attributes:
        steps: Number of steps.
        learning_rate: Peak rate of AdamW, for embeddings and norms.
        matrix_learning_rate: Peak rate of Muon, for the matrices of the layers.
        warmup_steps: Steps until the peak.
    """

    steps: int
    learning_rate: float
    matrix_learning_rate: float
    warmup_steps: int

    def share(self, step: int) -> float:
        """Share of the peak rate at this step, counted from 0."""
        left = (self.steps - step) / (FINAL_SHARE * self.steps)
        return min(1.0, (step + 1) / self.warmup_steps, left)


def fit(
    parameters: Mapping[str, torch.Tensor],
    plan: Plan,
    loss_of_step: Callable[[int], torch.Tensor],
    report: Report,
    checkpoint: Path | None = None,
) -> float:
    """Trains `parameters` in place and returns the mean loss of the last 20 steps.

    Args:
        parameters: Leaf tensors to train, by name.
        plan: Steps and learning rates.
        loss_of_step: Builds a step's batch and returns its loss; it must depend on the step number alone.
        report: Progress call.
        checkpoint: File that keeps the state every `CHECKPOINT_STEPS` steps; if it exists, training continues
            from it.
    """
    optimizers = _optimizers(parameters, plan)
    first = _resume(checkpoint, parameters, optimizers)
    peaks = [[group["lr"] for group in optimizer.param_groups] for optimizer in optimizers]
    losses: list[float] = []
    for step in range(first, plan.steps):
        loss = loss_of_step(step)
        for optimizer, rates in zip(optimizers, peaks, strict=True):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * plan.share(step)
            optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), GRADIENT_NORM)
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
        if checkpoint and (step + 1) % CHECKPOINT_STEPS == 0:
            _save(checkpoint, step + 1, parameters, optimizers)
        report(step + 1, plan.steps, losses[-1])
    return sum(losses[-20:]) / max(1, len(losses[-20:]))


def _optimizers(parameters: Mapping[str, torch.Tensor], plan: Plan) -> list[torch.optim.Optimizer]:
    matrices = {name: p for name, p in parameters.items() if p.dim() == 2 and "embed" not in name}
    others = [parameter for name, parameter in parameters.items() if name not in matrices]
    muon = torch.optim.Muon(
        list(matrices.values()),
        lr=plan.matrix_learning_rate,
        weight_decay=WEIGHT_DECAY,
        adjust_lr_fn="match_rms_adamw",
    )
    return [muon, torch.optim.AdamW(others, lr=plan.learning_rate, betas=BETAS, weight_decay=WEIGHT_DECAY)]


def _save(
    checkpoint: Path,
    step: int,
    parameters: Mapping[str, torch.Tensor],
    optimizers: Sequence[torch.optim.Optimizer],
) -> None:
    """Writes the state beside the checkpoint and renames it into place."""
    partial = checkpoint.with_suffix(".partial")
    weights = {name: parameter.detach() for name, parameter in parameters.items()}
    torch.save({"step": step, "weights": weights, "optimizers": [o.state_dict() for o in optimizers]}, partial)
    partial.replace(checkpoint)


def _resume(
    checkpoint: Path | None,
    parameters: Mapping[str, torch.Tensor],
    optimizers: Sequence[torch.optim.Optimizer],
) -> int:
    """Puts a saved state back, if there is one; returns the first step still to do."""
    if checkpoint is None or not checkpoint.exists():
        return 0
    state = torch.load(checkpoint, weights_only=True)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(state["weights"][name])
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        rates = [group["lr"] for group in optimizer.param_groups]
        optimizer.load_state_dict(saved)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
    return int(state["step"])


def parameter_count(parameters: Mapping[str, torch.Tensor]) -> int:
    """Number of trained scalars."""
    return sum(parameter.numel() for parameter in parameters.values())
