"""What a framework calls the metric that counts. Looked up by name: a name that is not there is an error, never a 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from configs.errors import SpecsweepError
from configs.evals.suites import Framework, SuiteName
from tasks.frameworks.job import Score

DEFAULT_METRIC: Final[dict[tuple[SuiteName, Framework], str]] = {
    ("gpqa", "lm-eval"): "exact_match,strict-match",
    ("mmlu-pro", "lm-eval"): "exact_match,custom-extract",
    ("ifeval", "lm-eval"): "prompt_level_strict_acc,none",
    ("gpqa", "inspect"): "accuracy",
    ("mmlu-pro", "inspect"): "accuracy",
    ("ifeval", "inspect"): "final_acc",
    ("hae-rae", "hret"): "accuracy",
    ("kmmlu", "hret"): "accuracy",
}
"""As the sources of lm-eval 0.4.13 (gpqa_diamond_cot_zeroshot, mmlu_pro, ifeval), inspect-ai 0.3.285 with inspect_evals
0.26.0 (choice(), if_metric()) and HRET 0.1.0 (string_match) have it. Where lm-eval has several filters, its first."""


class MetricMissing(SpecsweepError):
    """A framework did not report the metric that it was expected to report."""


def metric_of(suite: SuiteName, framework: Framework) -> str:
    """The framework's own name of its default metric for a suite.

    Raises:
        MetricMissing: nobody has looked it up in that framework's source.
    """
    name = DEFAULT_METRIC.get((suite, framework))
    if name is None:
        known = ", ".join(f"{theirs} through {by}" for theirs, by in DEFAULT_METRIC)
        raise MetricMissing(
            f"what {framework} calls its metric of {suite} is not known: add it to DEFAULT_METRIC; known: {known}"
        )
    return name


def default_score(suite: SuiteName, framework: Framework, scores: Sequence[Score]) -> Score:
    """The framework's default score among those that it reported.

    Raises:
        MetricMissing: there is none of that name; the text has the names that were there.
    """
    name = metric_of(suite, framework)
    found = next((score for score in scores if score.metric == name), None)
    if found is None:
        there = ", ".join(score.metric for score in scores) or "none at all"
        raise MetricMissing(f"{framework} reported no metric {name!r} for {suite}; it reported: {there}")
    return found
