"""Whether speed and accuracy of a cell come from the same server, and in what two cells were served differently.

A benchmark that times a fast server and grades a careful one has measured neither. Both steps record the command line
of their engine. The two command lines are compared without the arguments that say nothing about the answers: ports,
addresses, and the folders in which a machine happens to keep things.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from configs.cell import Serving
from configs.step import MeasuredStep
from warehouse.dataset.consolidate.inputs import CommittedStep
from warehouse.dataset.consolidate.raw import Raw
from warehouse.dataset.consolidate.rows import Judged, Row, judged, provenance
from warehouse.ledger.verdicts import Reason

OF_THE_MACHINE = ("--host", "--port", "--download-dir", "--uds", "--per-request-spec-decode-metrics")
"""Arguments that say where an engine listens or caches, or what it reports of its work, not how it answers."""

VERSIONS = ("engine_version", "model_revision", "draft_revision")
"""Columns of provenance that, with the command line, decide what answers. The card's name isn't one of them. Machines
of one kind differ in speed, which is checked elsewhere, but they compute the same answers up to rounding."""

OF_A_SPEED = ("engine_version", "gpu_driver")
"""Columns of provenance that decide a speed whatever the technique, so those of a cell and of its AR must agree. Where
both serve the same model, so must `model_revision`."""

SAMPLING = ("max_tokens", "temperature", "top_p", "samples", "dataset", "revision", "seed")
"""Fields of an evaluation that make two arms' answers incomparable, or at least worth naming, where they differ."""

SHOWN_CHARS = 80
"""Longest value in a sentence; the whole command line is in the row."""


def judged_as_served(step: CommittedStep, raw: Raw) -> Judged:
    """The node's verdict on a graded step, and what its engine's command line adds to it.

    Guard: the engine that was graded was started like the one that was timed, in the same cell and run. A cell without
    a timed step has nothing to compare; its control is another cell, served by an engine of its own.
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


def speed_differences(one: Row, other: Row, same_model: bool) -> list[str]:
    """In what the engines of a cell and of its AR differ that decides a speed.

    A diffusion model is compared with another model's AR: their revisions are of two repositories, so they may differ.
    """
    return unequal_columns(one, other, (*OF_A_SPEED, "model_revision") if same_model else OF_A_SPEED)


def timed_differently(places: Sequence[Row]) -> str | None:
    """By which clients these rows of provenance were timed, if by several: a speed is what its client says of it.

    In rows from before clients had a version, the column is null, which counts as a separate client.
    """
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
    """What a shell-quoted command line asks of an engine, by flag.

    Paths count by their last part: one cache lies in different folders on different machines. `command` is everything
    before the first flag.
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
