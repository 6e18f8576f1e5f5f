"""Raw records from the Hugging Face hub, fetched once per node and commit, inside a framework's environment."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from configs.checkout import ROOT
from configs.evals.records import DatasetUnavailable
from configs.evals.suites import Framework, SuiteFacts
from configs.prompt_suites import SpeedBenchFacts
from configs.secrets import TOKEN, secret, without_secrets
from tasks.frameworks.fetch import COMMIT_FILE
from tasks.host.environments import python_of
from tasks.host.hub import token_variables

DATASETS = "datasets"  # folder of the user's cache in which fetched records are kept
NEWEST = "newest"  # folder of a dataset whose commit nobody pinned: what was the newest when this node first asked
FETCH_S = 1800.0  # longest fetch: MMLU-Pro's 12,032 records are 5 MB; KMMLU has 45 files of some hundred kB each
TELL_EVERY_S = 0.5  # pause between two lines about a fetch that goes on
REMEDY = "or set `dataset:` to a local file"
HubDataset = SuiteFacts | SpeedBenchFacts  # what lies on the hub
Tell = Callable[[str], None]


def fetched(
    suite: HubDataset, revision: str | None, framework: Framework, cache: Path, tell: Tell
) -> tuple[list[tuple[str, dict[str, Any]]], str]:
    """All records of the suite's split, each with its subset, and their commit; a second use needs no network.

    `revision` None: the newest commit, which is then kept. `tell` gets a line while it goes on; an error of it ends
    that. Raises DatasetUnavailable: one line that says what is missing: a network, a token, a revision, a subset.
    """
    folder = cache / suite.hub_id.replace("/", "--") / (revision or NEWEST) / suite.split
    if missing := [subset for subset in suite.subsets if not (folder / f"{subset}.jsonl").exists()]:
        tell(f"fetching {suite.title}: {suite.hub_id} at {revision or 'its newest commit'}, {len(missing)} subsets")
        _fetch(suite, revision or "", framework, folder, missing, tell)
    records = [(subset, json.loads(line)) for subset in suite.subsets for line in _lines(folder / f"{subset}.jsonl")]
    return records, json.loads((folder / COMMIT_FILE).read_text(encoding="utf-8"))["commit"]


def _lines(path: Path) -> list[str]:
    with path.open(encoding="utf-8") as file:  # by newlines only: texts may have other line separators in them
        return file.readlines()


def _fetch(
    suite: HubDataset, revision: str, framework: Framework, folder: Path, subsets: list[str], tell: Tell
) -> None:
    python = python_of(framework)
    if python is None:
        raise DatasetUnavailable(
            f"{suite.title} is fetched by {framework}, which is not installed: bin/environment {framework}"
        )
    what = (str(folder), suite.hub_id, revision, suite.split, *subsets)
    done = _watched([str(python), "-P", "-m", "tasks.frameworks.fetch", *what], suite.hub_id, tell)
    said = done.stdout.strip().splitlines()
    if done.returncode or not said:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise DatasetUnavailable(f"fetching {suite.hub_id} failed: {last}; try again, {REMEDY}")
    if wrong := json.loads(said[-1]):
        raise DatasetUnavailable(explained(suite, revision, wrong["kind"], wrong["said"], wrong["subset"]))


def _watched(argv: list[str], hub_id: str, tell: Tell) -> subprocess.CompletedProcess[str]:
    """Run to the end; the process does not outlive an error out of `tell`, nor `FETCH_S`."""
    started = time.monotonic()
    with (
        TemporaryDirectory() as folder,
        subprocess.Popen(
            argv,
            env=without_secrets(os.environ) | token_variables(Path(folder)) | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        try:
            while (waited_s := time.monotonic() - started) < FETCH_S:
                with suppress(subprocess.TimeoutExpired):
                    said, complained = process.communicate(timeout=TELL_EVERY_S)
                    return subprocess.CompletedProcess(argv, process.returncode, said, complained)
                tell(f"fetching {hub_id}, {waited_s:.0f} s")
        finally:
            process.kill()  # nothing where it has ended
    raise DatasetUnavailable(f"fetching {hub_id} took over {FETCH_S:.0f} s: try again, {REMEDY}")


def explained(suite: HubDataset, revision: str, kind: str, said: str, subset: str) -> str:
    """One line: what the hub lacked or refused, and what to do."""
    name, page = suite.hub_id, f"huggingface.co/datasets/{suite.hub_id}"
    if kind == "refused" and suite.gated:
        token = "HF_TOKEN has no access to it yet" if secret(TOKEN) else "there is no HF_TOKEN"
        return f"{suite.title} is gated and {token}: accept its terms at {page} and set HF_TOKEN, {REMEDY}"
    explanations = {
        "unreachable": f"can't reach the hub for {name}: {said}; connect this node",
        "refused": f"the hub refused {name} ({said}): check HF_TOKEN",
        "no revision": f"{name} has no revision {revision!r}: name a commit of {page}",
        "no subset": f"{name} has no subset {subset!r} with a split {suite.split!r}: {said}; set another `revision:`",
        "not found": f"the hub has no {name} for this token ({said}): check HF_TOKEN",
    }
    explanation = explanations.get(kind, f"{name} can't be read: {said}; try again")
    return f"{explanation}, {REMEDY}"
