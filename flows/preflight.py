"""What an evaluation would lack where it runs, said before anything is rented or made."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.evals.spec import HUB, EvalStep
from configs.schema import Plan

TOKEN = "HF_TOKEN"
"""The variable with the hub's token; the tasks of `sky/` pass it on to nodes."""


class DatasetUnreachable(SpecsweepError):
    """The items of an evaluation could not be read where it runs; the text says which, and what to do."""


def require_datasets(plan: Plan, committed: Mapping[str, Collection[str]]) -> None:
    """Refuse a plan with an evaluation whose items nobody could fetch; what is measured already needs none.

    Args:
        plan: from `configs.expand.expand`.
        committed: cell key to the names of the steps that this run has already committed.

    Raises:
        DatasetUnreachable: a gated dataset without a token, or a file that nodes don't get.
    """
    lacking = dict.fromkeys(_lacking(plan, committed))
    if lacking:
        raise DatasetUnreachable("; ".join(lacking))


def _lacking(plan: Plan, committed: Mapping[str, Collection[str]]) -> Iterator[str]:
    """What each evaluation that is still to be measured lacks."""
    for planned in plan.cells:
        done = committed.get(planned.cell.cell_key, ())
        for step in planned.steps:
            if isinstance(step, EvalStep) and step.step not in done:
                yield from _without_token(step)
                yield from _without_file(step, is_rented=plan.cloud is not None)


def _without_token(step: EvalStep) -> Iterator[str]:
    if step.dataset == HUB and step.suite.gated and not os.environ.get(TOKEN):
        yield (
            f"{step.step}: {step.suite.hub_id} is gated and {TOKEN} isn't set: accept its terms on the hub and export "
            f"{TOKEN}, or name a local file (`dataset: FILE`) in the suite"
        )


def _without_file(step: EvalStep, is_rented: bool) -> Iterator[str]:
    file = step.dataset_file
    if file is None:
        return
    if not file.is_file():
        yield f"{step.step}: dataset file {step.dataset!r} is gone: put it there, or change `dataset` in the suite"
    elif is_rented and not file.resolve().is_relative_to(ROOT):
        yield f"{step.step}: dataset file {step.dataset!r} lies outside {ROOT}, which is all that rented nodes get"
