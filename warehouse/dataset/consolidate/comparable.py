"""Which rows may be compared: served alike, timed and graded on the same server, with the outputs that were promised.

A benchmark that times a fast server and grades a careful one has measured neither. So the command lines of both engines
are compared, but for what says nothing about the answers: ports, addresses, folders of one machine.

Verification accepts a drafted token only where the target would have written it. So a lossless technique differs from
AR only at near ties, which rounding decides. One that differs elsewhere is broken, and the usual defect (an fp8 kernel
that accepts whatever was drafted) is the fastest of all. So none of its figures is `ok`, least of all its speed.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from configs.cell import Serving
from configs.step import MeasuredStep
from warehouse.dataset.consolidate.inputs import CommittedStep, Raw
from warehouse.dataset.consolidate.rows import Judged, Result, Row, Start, judged, provenance
from warehouse.ledger.verdicts import Reason

OF_THE_MACHINE = ("--host", "--port", "--download-dir", "--uds", "--per-request-spec-decode-metrics")
"""Arguments that say where an engine listens or caches, or what it reports of its work, not how it answers."""

VERSIONS = ("engine_version", "model_revision", "draft_revision")
"""Columns of provenance that, with the command line, decide what answers. The card's name isn't one of them. Machines
of one kind differ in speed, which is checked elsewhere, but they compute the same answers up to rounding."""

SAMPLING = ("max_tokens", "temperature", "top_p", "samples", "dataset", "revision", "seed")
"""Fields of an evaluation that make two arms' answers incomparable, or at least worth naming, where they differ."""

SHOWN_CHARS = 80  # longest value in a sentence; the whole command line is in the row


def judged_as_served(step: CommittedStep, raw: Raw) -> Judged:
    """The node's verdict on a graded step, and what its engine's command line adds to it.

    Guard: the engine that was graded was started like the one that was timed, in the same cell and run. The
    cell's control is another cell, served by an engine of its own.
    """
    verdict, graded = judged(step, raw), provenance(step, raw)
    for other in raw.beside(step):
        if isinstance(other.spec, MeasuredStep) and other.spec.is_timed and other.visit.role == "cell":
            found = differences(graded, provenance(other, raw))
            if found:
                sentence = f"served unlike step {other.commit.step!r}, which measured the speed: {'; '.join(found)}"
                return verdict.worsened("suspect", Reason.ARGV_DIFFERS, sentence)
    return verdict


def differences(one: Row, other: Row) -> list[str]:
    """In what the engines of two provenance rows differ, one phrase each; what a row doesn't know is left out."""
    found: list[str] = []
    if one.get("argv") and other.get("argv"):
        found += _unequal(arguments(one["argv"]), arguments(other["argv"]))
    return found + unequal_columns(one, other, VERSIONS)


def unlike_the_first(places: Sequence[Row]) -> list[str]:
    """In what the engines behind one figure differ from its first one's, the card's driver included."""
    first, *others = places
    found = [each for place in others for each in differences(first, place)]
    found += [each for place in others for each in unequal_columns(first, place, ("gpu_driver",))]
    return list(dict.fromkeys(found))


def unequal_columns(one: Row, other: Row, columns: Sequence[str]) -> list[str]:
    """Of these columns of provenance, those that differ; what a row doesn't know is left out."""
    known = [name for name in columns if one.get(name) is not None and other.get(name) is not None]
    return _unequal({name: one[name] for name in known}, {name: other[name] for name in known})


def timed_differently(places: Sequence[Row]) -> str | None:
    """By which clients these rows were timed, if by several; one from before clients had a version is another."""
    versions = sorted({place.get("client_version") or 0 for place in places})
    if len(versions) < 2:
        return None
    return " and ".join("one without a version" if not each else f"version {each}" for each in versions)


def served_differently(step: CommittedStep, baseline: CommittedStep) -> list[str]:
    """Serving arguments, and settings of the evaluation, in which a cell and its AR cell differ."""
    found = unequal_serving(step.planned.cell.serving, baseline.planned.cell.serving)
    return found + [name for name in SAMPLING if getattr(step.spec, name, None) != getattr(baseline.spec, name, None)]


def unequal_serving(one: Serving, other: Serving) -> list[str]:
    """Serving arguments that differ, by name."""
    return [name for name in type(one).model_fields if getattr(one, name) != getattr(other, name)]


def arguments(argv: str) -> dict[str, str]:
    """What a shell-quoted command line asks of an engine, by flag; `command` is everything before the first one.

    Paths count by their last part: one cache lies in different folders on different machines.
    """
    words = shlex.split(argv)
    flags = [at for at, word in enumerate(words) if word.startswith("--")]
    found = {"command": " ".join(map(_portable, words[: flags[0] if flags else None]))}
    for at, after in zip(flags, [*flags, len(words)][1:], strict=True):
        name, equals, value = words[at].partition("=")
        if name not in OF_THE_MACHINE:
            found[name] = " ".join(map(_portable, ([value] if equals else []) + words[at + 1 : after]))
    return found


def _portable(word: str) -> str:
    """A word without the folder of this machine, also inside JSON."""
    if word.startswith("/"):
        return word.rstrip("/").rpartition("/")[2]
    if word.startswith("{"):
        try:
            return json.dumps(_without_folders(json.loads(word)), sort_keys=True)
        except json.JSONDecodeError:
            return word  # not JSON after all: compared as it is
    return word


def _without_folders(value: Any) -> Any:
    if isinstance(value, str):
        return _portable(value) if value.startswith("/") else value
    if isinstance(value, dict):
        return {name: _without_folders(inner) for name, inner in value.items()}
    return [_without_folders(inner) for inner in value] if isinstance(value, list) else value


def _unequal(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """`--max-model-len 4096 (there 8192)` for everything that differs."""
    names = dict.fromkeys((*one, *other))
    return [
        f"{name} {_said(one.get(name))} (there {_said(other.get(name))})"
        for name in names
        if one.get(name) != other.get(name)
    ]


def _said(value: str | None) -> str:
    return "not given" if value is None else (value[:SHOWN_CHARS] or "given")


NEAR_TIE_NATS = 0.251
"""Widest gap between the two best tokens that rounding alone can turn around.

Logits leave the model in bf16, whose numbers between 16 and 32, where the best lie, are 0.125 apart. Another batch
shape moves each of the two by a step at most. A thousandth more, because the gap is a difference of float32 logarithms.
"""


class Output(NamedTuple):
    """One greedy output. `gaps` are nats between the two best tokens at each token; None: they weren't asked for."""

    token_ids: Sequence[int]
    gaps: Sequence[float] | None = None


Outputs = Mapping[str, Output]  # outputs by prompt


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
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def gap_at(index: int, *outputs: Output) -> float | None:
    """How sure the model was at the token where outputs part, in nats: the widest gap that any of them saw there.

    Up to that token all had the same text, so a tie is a tie in each: if the model was sure in one output, logits moved
    by more than rounding. None: the gap isn't known for an output that reaches this token.
    """
    seen = [one.gaps[index] for one in outputs if one.gaps is not None and index < len(one.gaps)]
    wanted = [one for one in outputs if index < len(one.token_ids)]
    return max(seen) if seen and len(seen) == len(wanted) else None


Cell = tuple[str, str]  # run and key

BENCH = ("run_id", "model", "precision", "engine", "gpu")
"""What a cell shares with the AR cell whose second pass is its control."""

EARLY_TOKENS = 16
"""Where no gap between the two best tokens was recorded: no output equals AR's, and one differs within so many tokens.

Rounding also makes many outputs differ (the demo's draft model: 11 of 12, all at near ties), but it leaves some equal
or acts late. A cell that accepts wrong tokens does neither. Less is no finding: it may have been a tie.
"""


def lossless_cells(steps: Iterable[CommittedStep]) -> frozenset[Cell]:
    """Cells whose technique claims AR's outputs; AR itself is the control."""
    return frozenset(
        (step.run_id, step.cell_key) for step in steps if step.planned.cell.technique.lossless and not step.is_baseline
    )


def cells_that_fail_parity(results: Sequence[Result], lossless: Collection[Cell]) -> dict[Cell, str]:
    """Cells that are lossless by their method and aren't in these rows, with the sentence that says what was seen."""
    shown = [each for each in results if each.columns["step"] == "parity" and each.columns.get("parity_n")]
    controls: dict[tuple[Any, ...], list[Result]] = {}
    for each in shown:
        if each.columns["technique"] == "ar":
            controls.setdefault(_bench(each.columns), []).append(each)
    found: dict[Cell, str] = {}
    for row in (each.columns for each in shown):
        cell = (row["run_id"], row["cell_key"])
        beside = controls.get(_bench(row), [])
        if cell in lossless and beside and all(map(_holds, beside)) and (sentence := failure(row)) is not None:
            control = beside[0].columns
            found[cell] = f"{sentence}; AR repeats itself in {control['parity_equal']} of {control['parity_n']}"
    return found


Judgeable = TypeVar("Judgeable", Result, Start)


def barred(rows: Sequence[Judgeable], failed: Mapping[Cell, str]) -> list[Judgeable]:
    """The rows or starts in their order; all those of cells that fail parity are suspect, whatever was measured.

    How a broken cell's starts differ says nothing of the others'. Its controls' do.
    """
    done = []
    for each in rows:
        sentence = failed.get((each.columns["run_id"], each.columns["cell_key"]))
        if sentence is not None and each.columns.get("role", "cell") == "cell":
            each = each._replace(judged=each.judged.worsened("suspect", Reason.PARITY_FAILED, sentence))
        done.append(each)
    return done


def _bench(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in BENCH)


def _holds(control: Result) -> bool:
    """Whether AR's second pass is its first, but for near ties."""
    equal = control.columns["parity_equal"] == control.columns["parity_n"]
    margin = control.columns.get("divergence_margin")
    return control.is_ok and (equal or (margin is not None and margin <= NEAR_TIE_NATS))


def failure(row: Row) -> str | None:
    """What no rounding explains; None: nothing, or nothing that these figures show."""
    parted, margin = row["parity_n"] - row["parity_equal"], row.get("divergence_margin")
    if not parted:
        return None
    if margin is not None:
        if margin <= NEAR_TIE_NATS:
            return None
        sure = parted - (row.get("parity_near_ties") or 0)
        return f"{sure} of {row['parity_n']} greedy outputs leave AR's where it was sure (by up to {margin:.2g} nats)"
    first = row["first_divergence"]
    if row["parity_equal"] or first is None or first >= EARLY_TOKENS:
        return None
    return f"none of {row['parity_n']} greedy outputs is AR's, the first one parts at token {first}"
