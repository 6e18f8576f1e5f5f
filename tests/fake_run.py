"""A run whose cells are served by the fake engine: the real node runner, ledger and store around it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_sweep
from configs.schema import PlannedCell
from tests.busy_machine import PATIENCE_S
from tests.command_lines import start
from warehouse.ledger.commits import Commit, Ledger
from warehouse.ledger.lease import Attempt, Leases
from warehouse.ledger.placement import Placements, PlacementStory
from warehouse.ledger.store import open_store
from warehouse.ledger.tables import decode

SWEEP = """
name: fake
engine: fake
gpu: cpu
suite: fake-suite
spot: false
visits: {visits}
serving: {{max_model_len: {max_model_len}}}
{more}cells:
{cells}
"""

MODEL = """
name: fake-model
family: fake
hub_id: some/model
total_params_b: 0.001
active_params_b: 0.001
chat_template_kwargs: {enable_thinking: true}
"""

SUITE = """
name: fake-suite
steps:
  - {step: smoke, items: 5}
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 64, output_tokens: 128, repeats: 3, requests: 2}
      - {name: short c=2, context_tokens: 64, output_tokens: 128, repeats: 2, requests: 8, concurrency: 2}
  - {step: parity, prompts: prose, n_prompts: 3, context_tokens: 64, output_tokens: 32}
  - {step: eval-tiny, items: 24, seed: 7}
"""

QUICK = """
name: fake-suite
steps:
  - {step: smoke, items: 2}
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 64, output_tokens: 64, repeats: 3, stream_requests: 0}
"""

ENGINE = """
name: fake
command: [{python}, {root}/tests/fake_engine.py]
args: [--enable-per-request-metrics]
draft_args: [--per-request-spec-decode-metrics, summary]
start_timeout_s: 300
"""

TECHNIQUES = {
    "ar": "ar",
    "mtp": "mtp, k: 4, draft: {hub_id: some/draft}",
    "mtp2": "mtp, k: 2, draft: {hub_id: some/draft}",
    "ngram": "ngram, k: 4",
}


class FakeRun:
    """One run, in a folder of its own, and its first cell, unless another is chosen; `env` chooses the engine's lie."""

    def __init__(
        self,
        folder: Path,
        technique: str = "ar",
        store_url: str | None = None,
        suite: str = SUITE,
        visits: str = "single",
        max_model_len: int = 2048,
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Write the user's YAML, plan the run, and open its ledger; several techniques are separated by spaces.

        `files`: further ones, or others in place of ours.
        """
        self.folder = folder
        self.counts = folder / "requests.jsonl"
        self.state = folder / "state"
        written = write_user_configs(folder, technique, suite, visits, max_model_len)
        write_sweep(folder, files or {})
        plan = expand(load_sweep(str(written)))
        self.store_url = store_url or str(folder / "store")
        self.ledger = Ledger(open_store(self.store_url), "r1")
        self.ledger.write_plan(plan)
        self.cells = plan.cells
        self._choose(plan.cells[0])

    def cell(self, index: int) -> FakeRun:
        """The same run, looked at from another of its cells, which has an engine's state and counts of its own."""
        other = copy(self)
        other.counts = self.folder / f"requests-{index}.jsonl"
        other.state = self.folder / f"state-{index}"
        other._choose(self.cells[index])
        return other

    def _choose(self, planned: PlannedCell) -> None:
        self.planned, self.key = planned, planned.cell.cell_key
        self.leases, self.placements = Leases(self.ledger, self.key), Placements(self.ledger, self.key)

    def start(
        self, python: Path, lie: str = "honest", arguments: tuple[str, ...] = (), **env: str
    ) -> subprocess.Popen[str]:
        argv = [str(python), "-m", "tasks.cell", "--store", self.store_url, "--run", "r1", "--cell", self.key]
        return start([*argv, *arguments], self.env(lie) | env)

    def env(self, lie: str) -> dict[str, str]:
        return os.environ | {
            "PYTHONPATH": str(ROOT),
            "SPECSWEEP_STATE": str(self.state),
            "FAKE_ENGINE": lie,
            "FAKE_ENGINE_COUNT": str(self.counts),
        }

    def finish(self, python: Path, lie: str = "honest", arguments: tuple[str, ...] = (), **env: str) -> tuple[int, str]:
        return ended(self.start(python, lie, arguments, **env))

    def measured(self, python: Path, lie: str = "honest", arguments: tuple[str, ...] = (), **env: str) -> str:
        code, said = self.finish(python, lie, arguments, **env)
        assert code == 0, said
        return said

    def commit(self, step: str) -> Commit:
        found = self.ledger.read_commit(self.key, step)
        assert found is not None, f"{step} is not committed"
        return found

    def rows(self, step: str, table: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for part in self.commit(step).parts:
            if part.table == table:
                data = self.ledger.store.get(part.key)
                assert data is not None
                rows += decode(data, part.key)
        return rows

    def stored(self, pattern: str) -> list[Path]:
        """Files of the cell's steps in its folder store, such as `throughput/parts/windows-*`."""
        return list((self.folder / f"store/runs/r1/cells/{self.key}/steps").glob(pattern))

    def attempts(self) -> list[Attempt]:
        return self.leases.attempts()

    def story(self) -> PlacementStory:
        """Of its last placement."""
        return self.placements.stories()[-1]

    def ends(self) -> list[str | None]:
        """How its placements ended."""
        return [story.end and story.end.outcome for story in self.placements.stories()]

    def prompts_sent(self) -> list[str]:
        return prompts_in(self.counts)


def prompts_in(counts: Path) -> list[str]:
    """What an engine that counts there was asked, in order."""
    return [json.loads(line) for line in counts.read_text().splitlines()] if counts.exists() else []


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said


def write_user_configs(
    folder: Path, technique: str, suite: str = SUITE, visits: str = "single", max_model_len: int = 2048, more: str = ""
) -> Path:
    """A user's own sweep with an engine, a model and a suite of their own; techniques are separated by spaces."""
    rows = [f"  - {{model: fake-model, precision: bf16, technique: {TECHNIQUES[name]}}}" for name in technique.split()]
    sweep = SWEEP.format(cells="\n".join(rows), visits=visits, max_model_len=max_model_len, more=more)
    engine = ENGINE.format(python=sys.executable, root=ROOT)
    write_sweep(folder, {"sweep.yaml": sweep, "suites/fake-suite.yaml": suite, "engines/fake.yaml": engine})
    return folder / "sweep.yaml"


def write_sweep(folder: Path, files: Mapping[str, str]) -> None:
    """A user's files for a sweep of the fake model: texts by their path in the folder."""
    for name, text in {"models/fake-model.yaml": MODEL, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
