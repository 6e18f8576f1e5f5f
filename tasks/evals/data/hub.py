"""Raw records from the Hugging Face hub, fetched once per node and commit, inside a framework's environment."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from configs.checkout import ROOT
from configs.evals.suites import Framework, SuiteFacts
from tasks.evals.data.unavailable import DatasetUnavailable
from tasks.frameworks.fetch import COMMIT_FILE
from tasks.host.environments import python_of

NEWEST = "newest"
"""Folder of a dataset whose commit nobody pinned: what was the newest when this node first asked."""

FETCH_S = 1800.0
"""Longest fetch: MMLU-Pro's 12,032 records are 5 MB; KMMLU has 45 files of some hundred kB each."""

TELL_EVERY_S = 1.0
"""Pause between two lines of progress."""

REMEDY = "or set `dataset:` to a local file"


class Fetched(NamedTuple):
    """Raw records, each with the subset that it is of, and the commit that they were read at."""

    records: list[tuple[str, dict[str, Any]]]
    commit: str


def fetched(
    suite: SuiteFacts, revision: str | None, framework: Framework, cache: Path, tell: Callable[[str], None]
) -> Fetched:
    """All records of the suite's split; a second use needs no network.

    Args:
        suite: which dataset, subsets and split.
        revision: commit of the dataset; None: the newest, which is then kept.
        framework: whose environment fetches them.
        cache: where this node keeps fetched records.
        tell: gets a line before something is fetched.

    Raises:
        DatasetUnavailable: one line that says what is missing: a network, a token, a revision, a subset.
    """
    folder = cache / suite.hub_id.replace("/", "--") / (revision or NEWEST) / suite.split
    if missing := [subset for subset in suite.subsets if not (folder / f"{subset}.jsonl").exists()]:
        tell(f"fetching {suite.title}: {suite.hub_id} at {revision or 'its newest commit'}, {len(missing)} subsets")
        _fetch(suite, revision or "", framework, folder, missing, tell)
    records = [(subset, json.loads(line)) for subset in suite.subsets for line in _lines(folder / f"{subset}.jsonl")]
    return Fetched(records, json.loads((folder / COMMIT_FILE).read_text(encoding="utf-8"))["commit"])


def _lines(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as file:  # by newlines only: texts may have other line separators in them
        return file.readlines()


def _fetch(
    suite: SuiteFacts,
    revision: str,
    framework: Framework,
    folder: Path,
    subsets: list[str],
    tell: Callable[[str], None],
) -> None:
    python = python_of(framework)
    if python is None:
        raise DatasetUnavailable(
            f"{suite.title} is fetched by {framework}, which is not installed: bin/environment {framework}"
        )
    argv = [
        str(python),
        "-m",
        "tasks.frameworks.fetch",
        str(folder),
        suite.hub_id,
        revision,
        suite.split,
        *subsets,
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    code, out, errors = _told(argv, env, suite.hub_id, tell)
    said = out.strip().splitlines()
    if code or not said:
        last = (errors.strip().splitlines() or ["no word"])[-1]
        raise DatasetUnavailable(f"fetching {suite.hub_id} failed: {last}; try again, {REMEDY}")
    if wrong := json.loads(said[-1]):
        raise DatasetUnavailable(explained(suite, revision, wrong["kind"], wrong["said"], wrong["subset"]))


def _told(argv: list[str], env: dict[str, str], name: str, tell: Callable[[str], None]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the fetch; `tell` hears that it goes on, and may end it by raising."""
    started = time.monotonic()
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as fetching:
        try:
            while True:
                try:
                    out, errors = fetching.communicate(timeout=TELL_EVERY_S)
                    return fetching.returncode, out, errors
                except subprocess.TimeoutExpired:
                    spent_s = time.monotonic() - started
                    if spent_s > FETCH_S:
                        raise DatasetUnavailable(
                            f"fetching {name} took over {FETCH_S:.0f} s: try again, {REMEDY}"
                        ) from None
                    tell(f"fetching {name}, {spent_s:.0f} s")
        except BaseException:
            fetching.kill()
            raise


def explained(suite: SuiteFacts, revision: str, kind: str, said: str, subset: str) -> str:
    """One line: what the hub lacked or refused, and what to do."""
    name, page = suite.hub_id, f"huggingface.co/datasets/{suite.hub_id}"
    if kind == "unreachable":
        return f"can't reach the hub for {name}: {said}; connect this node, {REMEDY}"
    if kind == "refused" and suite.gated:
        token = "HF_TOKEN has no access to it yet" if os.environ.get("HF_TOKEN") else "there is no HF_TOKEN"
        return f"{suite.title} is gated and {token}: accept its terms at {page} and set HF_TOKEN, {REMEDY}"
    if kind == "refused":
        return f"the hub refused {name} ({said}): check HF_TOKEN, {REMEDY}"
    if kind == "no revision":
        return f"{name} has no revision {revision!r}: name a commit of {page}, {REMEDY}"
    if kind == "no subset":
        return (
            f"{name} has no subset {subset!r} with a split {suite.split!r}: {said}; set another `revision:`, {REMEDY}"
        )
    if kind == "not found":
        return f"the hub has no {name} for this token ({said}): check HF_TOKEN, {REMEDY}"
    return f"{name} can't be read: {said}; try again, {REMEDY}"
