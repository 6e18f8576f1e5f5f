"""The calm run that a bad night is held against: the same suite on this machine, where nothing is lost or far away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl

from configs.checkout import ROOT
from tests.fake_run import SUITE, write_sweep
from warehouse.dataset.snapshot import read_current
from warehouse.ledger.store import open_store

SAME_WHEREVER = (
    "model precision k engine gpu weights step condition mode context_tokens output_tokens concurrency repeats "
    "metric score n truncated blank extractor parity_equal parity_n first_divergence "
).split()
"""Columns of the dataset that hold no clock, no place, and not which of several equal techniques a cell has."""

EVAL_ITEMS, PARITY_PROMPTS, SMOKE_REQUESTS = 24, 3, 20
"""What `SUITE` asks besides its windows; smoke: ten questions that nobody misses, and its items with their warm-up."""

SWEEP = """
name: calm
engine: fake
gpu: cpu
suite: fake-suite
spot: false
visits: single
concurrency: 1
serving: {max_model_len: 2048}
cells: [{model: fake-model, precision: bf16, technique: calm, k: 4}]
"""


class CalmRun:
    """One cell, measured by `sweep run` beside whatever else goes on."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._log = folder, folder / "sweep.log"
        engine = {"name": "fake", "command": [sys.executable, str(ROOT / "tests" / "fake_engine.py")]}
        files = {
            "sweep.yaml": SWEEP,
            "suites/fake-suite.yaml": SUITE,
            "engines/fake.yaml": json.dumps(engine | {"start_timeout_s": 120}),
            "techniques/calm.yaml": json.dumps(
                {"name": "calm", "method": "ngram", "takes_k": True, "engine_env": {"PYTHONPATH": str(ROOT)}}
            ),
        }
        write_sweep(folder, files)
        own = {
            "PYTHONPATH": str(ROOT),
            "SPECSWEEP_STORE": str(folder / "store"),
            "SPECSWEEP_STATE": str(folder / "state"),
        }
        argv = [sys.executable, "-m", "flows.terminal", "run", str(folder / "sweep.yaml"), "--run-id", "calm"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                argv, cwd=ROOT, env=os.environ | own, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def rows(self) -> pl.DataFrame:
        """What it measured, once it is over."""
        self.process.wait(300)
        assert self.process.returncode == 0, self._log.read_text(encoding="utf-8", errors="replace")
        return comparable(read_current(open_store(str(self._folder / "store"))))


def by_step(asked: list[str]) -> dict[str, set[str]]:
    """Step -> its prompts, of all that a cell which lost nothing asked of its engine, in order."""
    late = len(asked) - EVAL_ITEMS
    return {
        "smoke": {*asked[:SMOKE_REQUESTS]},
        "throughput": {*asked[SMOKE_REQUESTS : late - PARITY_PROMPTS]},
        "parity": {*asked[late - PARITY_PROMPTS : late]},
        "eval-tiny": {*asked[late:]},
    }


def comparable(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns that any undisturbed run of the suite has equal, in one order."""
    return frame.select(SAME_WHEREVER).sort(SAME_WHEREVER, nulls_last=True)
