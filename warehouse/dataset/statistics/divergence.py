"""Where greedy outputs part, and whether the model was torn there between two tokens, or sure of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

NEAR_TIE_NATS = 0.251
"""Widest gap between the two best tokens that rounding alone can turn around.

Logits leave the model in bf16, whose numbers between 16 and 32, where the best logits lie, are 0.125 apart. Another
batch shape sums in another order and moves each of the two by a step; a gap of two steps is the widest they can close.
A thousandth more, because the gap is a difference of float32 logarithms.
"""


class Output(NamedTuple):
    """One greedy output. `gaps` are nats between the two best tokens at each token; None: they weren't asked for."""

    token_ids: Sequence[int]
    gaps: Sequence[float] | None = None


Outputs = Mapping[str, Output]
"""Outputs by prompt."""


class Agreement(NamedTuple):
    """How far two sets of outputs agree. `gaps` has one figure per prompt that parted; None: not known of all."""

    equal: int
    compared: int
    first_divergence: int | None
    gaps: tuple[float, ...] | None

    @property
    def near_ties(self) -> int | None:
        """How many prompts parted at a near tie; None: none parted, or it isn't known."""
        return sum(gap <= NEAR_TIE_NATS for gap in self.gaps) if self.gaps else None

    @property
    def margin(self) -> float | None:
        """The widest gap at which a prompt parted, in nats."""
        return max(self.gaps) if self.gaps else None


def agreement(reference: Outputs, others: Outputs) -> Agreement:
    """Compare the prompts that both answered."""
    common = sorted(set(reference) & set(others))
    parted: list[int] = []
    gaps: list[float | None] = []
    for prompt in common:
        one, other = reference[prompt], others[prompt]
        at = first_difference(one.token_ids, other.token_ids)
        if at is not None:
            parted.append(at)
            gaps.append(gap_at(at, one, other))
    known = tuple(gap for gap in gaps if gap is not None)
    return Agreement(
        equal=len(common) - len(parted),
        compared=len(common),
        first_divergence=min(parted, default=None),
        gaps=known if len(known) == len(gaps) else None,
    )


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """Index of the first token that differs; where one ends early, its length; None if they are equal."""
    if one == other:  # the usual case, and the fast one
        return None
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def gap_at(index: int, *outputs: Output) -> float | None:
    """How sure the model was at the token where outputs part: the widest gap that any of them saw there, in nats.

    Up to that token all had the same text before them, so a tie is a tie in each. One witness that was sure means that
    logits moved by more than rounding, however torn the other was. An output that ended before is no witness.

    Returns:
        None if a witness doesn't know.
    """
    seen = [one.gaps[index] for one in outputs if one.gaps is not None and index < len(one.gaps)]
    wanted = [one for one in outputs if index < len(one.token_ids)]
    return max(seen) if seen and len(seen) == len(wanted) else None
