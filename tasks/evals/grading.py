"""From what a framework graded to rows and scores: the only place where an answer becomes right or wrong.

First it is joined with what the engine answered, item by item, or refused. HRET 0.1.0 as released gave answers to the
wrong questions; a request that timed out was counted as a wrong answer. Neither shows in a score. So a graded response
must be the recorded answer to a prompt with the item's own question.

Our reading of the body decides about a letter, the framework's own checkers about an instruction. What every other
reader makes of the same answers is kept beside it, to be shown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from configs.errors import SpecsweepError
from configs.evals.suites import SuiteFacts
from configs.steps.eval import EvalStep
from tasks.evals.exchange import prompt_hash
from tasks.evals.extractors import VERSION, letter_of, read
from tasks.evals.items import right_answer
from tasks.frameworks.job import Item, Result, Sample, Score
from tasks.frameworks.thoughts import end_unknown, without_thoughts
from warehouse.ledger.tables import Row

EXCERPT_CHARS = 80  # characters of an answer that an error shows
AnswersTo = Callable[[str, int], Sequence[Row]]  # rows of `exchanges` by prompt hash and sample, in order of occurrence


class PairingError(SpecsweepError):
    """What a framework graded is not what the engine answered. Nothing of it may become a score."""


class Paired(NamedTuple):
    """One item: what the framework made of it, and the exchange that answered it."""

    item: Item
    graded: Sample
    exchange: Row


def paired(
    result: Result, items: Sequence[Item], answers_to: AnswersTo, sample: int, quoted: bool = True
) -> list[Paired]:
    """Every item with its exchange, in the items' order; `sample` is which answer to every item, from 0.

    Raises PairingError: an item is missing, or was graded on anything but the response log's answer to its own prompt.
    It shows what was said only if `quoted`: a gated suite's text may not be spread.
    """
    graded = _by_item(result, items)
    hashes = {item.item_id: prompt_hash(graded[item.item_id].messages) for item in items}
    misasked = _misasked(items, graded, quoted)
    _refuse(result, items, "were asked with a prompt that has not their question and options", misasked)
    _refuse(result, items, "share a prompt with an item whose right answer is another", _ambiguous(items, hashes))
    free = {name: list(answers_to(name, sample)) for name in dict.fromkeys(hashes.values())}
    missing = ((item, "it was graded all the same") for item in items if not free[hashes[item.item_id]])
    _refuse(result, items, "have no answer in the response log (timed out?)", missing)
    taken: list[Paired] = []
    swapped: list[tuple[Item, str]] = []
    for item in items:
        theirs, left = graded[item.item_id], free[hashes[item.item_id]]
        same = next((row for row in left if _heard(row["body"]) == _heard(theirs.response)), None)
        if same is None:
            answered = _excerpt(left[0]["body"], quoted) if left else "fewer answers"
            swapped.append((item, f"the framework graded {_excerpt(theirs.response, quoted)}, the log has {answered}"))
        else:
            left.remove(same)
            taken.append(Paired(item, theirs, same))
    _refuse(result, items, "were graded on a response that is not the engine's answer to them", swapped)
    return taken


def _by_item(result: Result, items: Sequence[Item]) -> dict[str, Sample]:
    if result.error is not None:
        raise PairingError(f"{result.framework}: {result.error}")
    asked, graded = [item.item_id for item in items], [sample.item_id for sample in result.samples]
    if sorted(asked) != sorted(graded):
        odd = next((name for name in graded if name not in asked or graded.count(name) > 1), None)
        odd = odd or next(name for name in asked if name not in graded)
        raise PairingError(
            f"{result.framework} {result.version} graded {len(graded)} answers to {len(asked)} items, and {odd} is not "
            "once in both: nothing of it is kept"
        )
    return {sample.item_id: sample for sample in result.samples}


def _misasked(items: Sequence[Item], graded: dict[str, Sample], quoted: bool) -> Iterator[tuple[Item, str]]:
    """Items whose prompt has not their own question and options in it: the answer would be graded by another's gold."""
    for item in items:
        asked = _squeezed("".join(said["content"] for said in graded[item.item_id].messages))
        lacking = next((text for text in (item.question, *item.choices) if _squeezed(text) not in asked), None)
        if lacking is not None:
            yield item, f"the prompt ends {_excerpt(asked, quoted)}"


def _ambiguous(items: Sequence[Item], hashes: dict[str, str]) -> Iterator[tuple[Item, str]]:
    """Items that are asked alike and graded differently: which answer is whose, nobody could tell."""
    first: dict[str, Item] = {}
    for item in items:
        other = first.setdefault(hashes[item.item_id], item)
        if right_answer(other) != right_answer(item):
            yield item, f"{other.item_id} says {other.gold or 'otherwise'}, it says {item.gold or 'otherwise'}"


def _refuse(result: Result, items: Sequence[Item], what: str, found: Iterable[tuple[Item, str]]) -> None:
    wrong = list(found)
    if wrong:
        item, example = wrong[0]
        raise PairingError(
            f"{result.framework} {result.version}: {len(wrong)} of {len(items)} items {what}, e.g. {item.item_id}: "
            f"{example}; nothing of it is scored"
        )


def _heard(text: str | None) -> str:
    """What an answer says, without what frameworks strip on the way."""
    return _squeezed(without_thoughts(text or ""))


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _excerpt(text: str | None, quoted: bool) -> str:
    words = " ".join((text or "").split())
    if words and not quoted:
        return f"{len(words)} characters (a gated suite's, not shown)"
    return repr(words if len(words) <= EXCERPT_CHARS else "…" + words[-EXCERPT_CHARS:]) if words else "nothing"


READERS = {"last-in-body": "last_in_body", "strict": "strict", "flexible": "flexible", "first": "first"}
"""Readers of a letter by the name that `eval_scores` has for them, and their columns. The first one counts."""

SCORES_OF = ("suite", "framework", "framework_version", "dataset_revision")  # which all scores of a step share


class MetricMissing(SpecsweepError):
    """A framework did not report its default metric: one that is not there is an error, never a 0."""


def sample_row(item_paired: Paired, spec: EvalStep, sample: int) -> dict[str, Any]:
    """One graded answer as a row of `eval_samples`, without its identity. Raises ValueError: see `marks`."""
    item, graded, exchange = item_paired
    letters, said = spec.suite.letters, graded.extracted
    return {
        "suite": spec.step,
        "framework": spec.framework,
        "item_id": item.item_id,
        "sample": sample,
        "category": item.category or None,
        "prompt_hash": exchange["prompt_hash"],
        "request_hash": exchange["request_hash"],
        "occurrence": exchange["occurrence"],
        "gold": item.gold or None,
        "framework_answer": letter_of(letters, said) if said is not None and letters else said,
        "framework_correct": graded.correct,
        "details": json.dumps(graded.details, ensure_ascii=False, sort_keys=True) if graded.details else None,
        "completion_tokens": exchange["completion_tokens"],
        **marks(spec.suite, item.gold or None, graded.details, exchange),
    }


def marks(suite: SuiteFacts, gold: str | None, details: Mapping[str, Any], exchange: Row) -> dict[str, Any]:
    """What follows from the recorded answer alone, so that it can be found again without a framework or an engine.

    Raises ValueError: a suite without letters, and no word on whether the answer passed.
    """
    body, truncated = exchange["body"] or "", exchange["finish_reason"] == "length"
    if truncated and end_unknown(body):
        body = ""  # nobody knows whether the answer had begun
    readings = read(suite.letters, exchange["reasoning"] or "", body)
    if suite.letters:
        correct = readings.last_in_body is not None and readings.last_in_body == gold
    elif isinstance(details.get(suite.checked), bool):
        correct = details[suite.checked]
    else:
        has = ", ".join(details)
        raise ValueError(f"a graded answer to {suite.title} has no detail {suite.checked!r}; it has: {has}")
    return {
        **readings._asdict(),
        "correct": correct,
        "truncated": truncated,
        "blank": not without_thoughts(body).strip(),
        "extractor_version": VERSION,
    }


def score_rows(
    rows: Sequence[Row], results: Sequence[Result], spec: EvalStep, dataset_revision: str | None
) -> list[dict[str, Any]]:
    """Rows of `eval_scores` of all graded answers of a step: ours by every reader, then the framework's own.

    There is one result per sample. `dataset_revision` is the commit of the dataset, or the sha256 of the file.
    Raises MetricMissing: a result lacks the framework's default metric.
    """
    of = (spec.step, spec.framework, results[0].version, dataset_revision)
    common = dict(zip(SCORES_OF, of, strict=True))
    return [common | score for score in (*our_scores(rows, spec.suite), *_their_scores(results, spec))]


def our_scores(rows: Sequence[Row], suite: SuiteFacts) -> list[dict[str, Any]]:
    """The score by every reader, over the same answers; without the columns of `SCORES_OF`."""
    samples = 1 + max(int(row["sample"]) for row in rows)
    ours = {"source": "ours", "metric": suite.counting[0], "samples": samples}
    return [
        {**ours, "extractor": extractor, **dict(zip(("value", "stderr", "n"), clustered(right), strict=True))}
        for extractor, right in right_by_reader(rows, suite)
    ]


def right_by_reader(rows: Sequence[Row], suite: SuiteFacts) -> Iterable[tuple[str, list[tuple[str, bool]]]]:
    """Per reader: which answers to which items it holds for right. A reader that finds nothing is wrong."""
    if not suite.letters:
        yield suite.counting[1], [(row["item_id"], row["correct"]) for row in rows]
    for extractor, column in READERS.items() if suite.letters else ():
        yield extractor, [(row["item_id"], row[column] is not None and row[column] == row["gold"]) for row in rows]
    judged = [(row["item_id"], row["framework_correct"]) for row in rows if row["framework_correct"] is not None]
    if judged:
        yield "framework", judged


def _their_scores(results: Sequence[Result], spec: EvalStep) -> list[dict[str, Any]]:
    """The framework's own figures. Over several samples they are means; such a mean's error is not the framework's."""
    default, by_metric = spec.evaluation.metric, dict[str, list[Score]]()
    for result in results:
        names = [score.metric for score in result.scores]
        if default not in names:
            there = ", ".join(names) or "none at all"
            raise MetricMissing(f"{spec.step}: {spec.framework} reported no metric {default!r}; it reported: {there}")
        for score in result.scores:
            by_metric.setdefault(score.metric, []).append(score)
    return [
        {
            "source": "framework",
            "extractor": "framework" if metric == default else None,
            "metric": metric,
            "value": sum(score.value for score in scores) / len(scores),
            "stderr": scores[0].stderr if len(scores) == 1 else None,
            "n": scores[0].n,
            "samples": len(scores),
        }
        for metric, scores in by_metric.items()
    ]


def clustered(right: Sequence[tuple[str, bool]]) -> tuple[float, float | None, int]:
    """Mean, standard error and number of items, of answers that come in items. With a single item there is no error.

    SE = sqrt(G / (G - 1) * sum over items of (sum over its answers of (right - mean))^2) / answers, for G items
    (Miller, arXiv 2411.00640, section 2.2).
    """
    mean = sum(was for _, was in right) / len(right)
    off: dict[str, float] = {}
    for item_id, was in right:
        off[item_id] = off.get(item_id, 0.0) + was - mean
    items = len(off)
    if items == 1:
        return mean, None, 1
    spread = sum(value * value for value in off.values())
    return mean, math.sqrt(items / (items - 1) * spread) / len(right), items
