"""Cells against the pinned engine's own configuration code, on this machine, before anything is rented.

What was found out is kept in the user's cache under a hash of all that decides it: words, variables, the checkpoint's
configuration, the card, and the engine's pins. So a cell is rehearsed once, and asking again needs no engine.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pydantic import ValidationError

from configs.cell import Cell, Draft, Gpu, Model
from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.files import Library
from configs.local_checkpoint import local_folder
from configs.schema import Plan
from configs.secrets import without_secrets
from configs.step import MeasuredStep
from configs.without_weights import CheckpointShape
from tasks.dummy_checkpoint import write_shape
from tasks.engine.command import serve_words
from tasks.family import members
from tasks.host import environments
from tasks.host.environment_spec import folder_of, user_cache
from tasks.host.hub import hub_answers, token_variables
from tasks.rehearsal.facts import Facts, Finding, findings, remark

RECIPE = 1
"""To be raised when a rehearsal finds out more than before, so that what is kept is found out again."""

UNPINNED_FOR_S = 24 * 3600.0
"""How long a result is good for a checkpoint of the hub without a revision, whose files may change."""

PORT = 8000
"""Any: nothing is started."""

Tell = Callable[[str], None]


class RehearsalFailed(SpecsweepError):
    """The rehearsal itself could not run; the text says why."""


class WouldNotStart(SpecsweepError):
    """Cells that the engine would refuse, or that can't be what their labels say."""


class Part(NamedTuple):
    """One engine command of a plan: a cell, or the control that a cell brings along."""

    cell: Cell
    gpu: Gpu
    steps: tuple[MeasuredStep, ...]
    is_control: bool

    @property
    def is_known(self) -> bool:
        """Whether we know what it would be started on: a processor as this one, or a card with its figures."""
        return self.cell.engine.on_cpu or None not in (self.gpu.memory_gib, self.gpu.compute_capability)

    @property
    def label(self) -> str:
        """Its cell's label, and whether it is a control."""
        return self.cell.label + (" (control)" if self.is_control else "")


class Rehearsed(NamedTuple):
    """What is known of one command. `facts` None: it was never rehearsed, or is nothing of vLLM's."""

    part: Part
    facts: Facts | None
    found: list[Finding]

    @property
    def refusals(self) -> list[str]:
        """One line for each thing that would fail."""
        return [f"{self.part.label}: {each.line}" for each in self.found if each.is_fatal]

    @property
    def would_start(self) -> bool:
        """Whether all of it was tried, with the release that serves it, and nothing was refused."""
        engine = self.part.cell.engine
        is_its_release = engine.is_pinned or engine.on_cpu
        return is_its_release and self.facts is not None and self.facts.stage == "done" and not self.refusals

    @property
    def remarks(self) -> list[str]:
        """One line for each thing to know."""
        return [f"{self.part.label}: {each.line}" for each in self.found if not each.is_fatal]


def parts_of(plan: Plan) -> list[Part]:
    """Every engine command of a plan that vLLM serves, each once, in the plan's order."""
    parts: dict[str, Part] = {}
    for planned in plan.cells:
        for cell, is_control in ((planned.cell, False), (planned.control, True)):
            if cell is not None and cell.engine.kind == "vllm":
                parts.setdefault(cell.cell_key, Part(cell, planned.gpu, planned.steps, is_control))
    return list(parts.values())


def rehearse(parts: Sequence[Part], library: Library, tell: Tell) -> list[Rehearsed]:
    """Rehearse what isn't remembered, with progress through `tell`.

    Raises RehearsalFailed: the engine's environment can't be made, or its vLLM doesn't start.
    """
    asked = [_request(part, library) for part in parts]
    known = {each.key: facts for each in asked if (facts := _kept(each)) is not None}
    missing = {each.key: each for each in asked if each.part.is_known and each.key not in known}
    before = len(known)
    for card in dict.fromkeys(json.dumps(each.card) for each in missing.values()):
        for key, facts in _run([each for each in missing.values() if json.dumps(each.card) == card], tell):
            known[key] = facts
            tell(f"rehearsed {len(known) - before} of {len(missing)}: {missing[key].part.label}")
    return [_judged(each.part, known.get(each.key)) for each in asked]


def remembered(parts: Iterable[Part], library: Library) -> list[Rehearsed]:
    """What is known without starting anything."""
    return [_judged(part, _kept(_request(part, library))) for part in parts]


def require(rehearsed: Sequence[Rehearsed]) -> None:
    """Raises WouldNotStart with a line for each refusal."""
    refusals = [line for each in rehearsed for line in each.refusals]
    if refusals:
        raise WouldNotStart("; ".join(refusals))


def _judged(part: Part, facts: Facts | None) -> Rehearsed:
    if not part.is_known:
        limit = "its file has no memory_gib or no compute_capability: nothing was tried"
        return Rehearsed(part, None, [remark("gpu", part.gpu.name, limit, "both figures")])
    return Rehearsed(part, facts, [] if facts is None else findings(part.cell, part.gpu, facts, part.steps))


class _Request(NamedTuple):
    key: str
    part: Part
    card: dict[str, Any] | None
    weights: _Checkpoint
    draft: _Checkpoint | None

    @property
    def is_pinned(self) -> bool:
        return self.weights.is_pinned and (self.draft is None or self.draft.is_pinned)

    def document(self) -> dict[str, Any]:
        """What the engine's side is asked; folders of shapes are written for it."""
        cell, env = self.part.cell, dict[str, str]()
        draft = self.draft.place() if self.draft is not None else None
        is_here = self.weights.is_here and (self.draft is None or self.draft.is_here)
        if is_here or not hub_answers():  # without a network its client asks for a minute before it gives up
            env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        argv = serve_words(cell, self.weights.place(), draft, PORT)
        return {"key": self.key, "argv": argv, "env": env | _variables(cell)}


def _request(part: Part, library: Library) -> _Request:
    cell = part.cell
    weights = _checkpoint(cell, cell.model, library)
    draft = _checkpoint(cell, cell.draft, library) if cell.draft is not None else None
    card, words = _card(part), serve_words(cell, weights.content, draft and draft.content, PORT)
    decides = [RECIPE, folder_of("engine-cpu").name, card, words, _variables(cell)]
    key = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:32]
    return _Request(key, part, card, weights, draft)


def _variables(cell: Cell) -> dict[str, str]:
    return {**cell.engine.env, **cell.technique.engine_env}


def _card(part: Part) -> dict[str, Any] | None:
    gpu = part.gpu
    if part.cell.engine.on_cpu or gpu.memory_gib is None or gpu.compute_capability is None:
        return None
    major, minor = divmod(round(gpu.compute_capability * 10), 10)
    name = gpu.reported_as[0] if gpu.reported_as else gpu.name
    return {"name": name, "memory_bytes": int(gpu.memory_gib * 2**30), "capability": [major, minor]}


class _Checkpoint(NamedTuple):
    """What vLLM is given for a checkpoint, and what tells its content."""

    content: str
    place: Callable[[], str]
    is_here: bool = True
    is_pinned: bool = True


def _checkpoint(cell: Cell, source: Model | Draft, library: Library) -> _Checkpoint:
    """Its folder where a config.json is here: of a shape, a user's own folder, the demo family; else its hub id."""
    if source.family_member is not None:
        return _Checkpoint(f"family:{source.revision}", partial(str, members.folder_of(source.family_member)))
    shape = cell.shape_named(source.shape) if source.shape is not None else _published(source.hub_id, library)
    if shape is not None:
        return _Checkpoint(shape.model_dump_json(), lambda: str(write_shape(shape, user_cache() / "shapes")))
    local = local_folder(source.hub_id)
    if local is not None:
        return _Checkpoint(f"folder:{source.revision}", partial(str, local))
    is_pinned = source.revision is not None
    return _Checkpoint(f"{source.hub_id}@{source.revision}", partial(str, source.hub_id), False, is_pinned)


def _published(hub_id: str | None, library: Library) -> CheckpointShape | None:
    """The shape whose config.json is that of a hub id."""
    shapes = (library.load("shapes", name, CheckpointShape) for name in library.files("shapes"))
    return next((shape for shape in shapes if hub_id in shape.published_as), None)


def _place(key: str) -> Path:
    return user_cache() / "rehearsals" / f"{key}.json"


def _kept(request: _Request) -> Facts | None:
    place = _place(request.key)
    with suppress(FileNotFoundError, ValidationError):  # a damaged file is as good as none: it is found out again
        if request.is_pinned or time.time() - place.stat().st_mtime < UNPINNED_FOR_S:
            return Facts.model_validate_json(place.read_bytes())
    return None


def _keep(key: str, facts: Facts) -> None:
    place = _place(key)
    place.parent.mkdir(parents=True, exist_ok=True)
    half = place.with_suffix(f".{os.getpid()}")
    half.write_text(facts.model_dump_json(), encoding="utf-8")
    half.replace(place)


def _run(requests: Sequence[_Request], tell: Tell) -> Iterator[tuple[str, Facts]]:
    """Ask the pinned vLLM in one process; a network that wasn't there may be there next time, so that isn't kept."""
    python = environments.ensure("engine-cpu", tell=tell)
    tell(f"vLLM's configuration code starts, for {len(requests)} commands")
    inherited = without_secrets(os.environ)
    kept = {name: value for name, value in inherited.items() if not name.startswith("VLLM_")}  # cells have their own
    env = kept | {"PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "WARNING"}
    log = user_cache() / "rehearsals" / f"log-{os.getpid()}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    question = json.dumps({"card": requests[0].card, "cells": [each.document() for each in requests]})
    words = [str(python), "-P", "-m", "tasks.rehearsal.engine_side"]
    pipe = subprocess.PIPE
    with TemporaryDirectory() as folder, log.open("wb") as errors:
        env |= token_variables(Path(folder))
        with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=env) as asking:
            yield from _told(asking, question)
    if asking.returncode != 0:
        last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        ended = f"the rehearsal's vLLM ended with code {asking.returncode} ({' '.join(last)})"
        raise RehearsalFailed(f"{ended}: its log is {log}")


def _told(asking: subprocess.Popen[str], question: str) -> Iterator[tuple[str, Facts]]:
    try:
        for line in _answers(asking, question):
            answer = json.loads(line)
            facts = Facts.model_validate(answer)
            if facts.stage != "process" and not facts.is_unreachable and not (facts.error and facts.is_ours):
                _keep(answer["key"], facts)
            yield answer["key"], facts
    except BaseException:
        asking.kill()
        raise


def _answers(asking: subprocess.Popen[str], question: str) -> Iterator[str]:
    assert asking.stdin is not None and asking.stdout is not None
    with suppress(BrokenPipeError):  # it died: its code says so
        asking.stdin.write(question)
        asking.stdin.close()
    yield from asking.stdout
