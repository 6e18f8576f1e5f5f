"""Makes `store.tar.xz`: two small runs and the snapshot that the code of the day builds from them.

    unshare --uts sh -c 'hostname testhost; PYTHONPATH=. "$(bin/environment dev)" -m tests.warehouse.small_store.make'

- `r1`: two cells that the node runner measures on the fake engine, with every step that needs no framework.
- `made-up`: the demo's nine cells with figures from a seed, an evaluation with answers, and a preempted attempt.

The kept file was made by commit f7a01cb. Only a change of the ledger's layout is a reason to make it again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from configs.checkout import ROOT
from tests import fake_run
from tests.fake_box import FakeBox
from tests.warehouse.runs import GPQA, answers, score
from tests.warehouse.synthetic import StepWriter, mirrored_demo, write_demo_run
from warehouse.dataset.snapshot import publish
from warehouse.ledger.commits import Ledger
from warehouse.ledger.steps import EVAL_SAMPLES, EVAL_SCORES
from warehouse.ledger.store import Store, open_store

ARCHIVE = Path(__file__).with_name("store.tar.xz")

ENGINE = """
name: fake
command: [fake-engine]
args: [--enable-per-request-metrics]
draft_args: [--per-request-spec-decode-metrics, summary]
start_timeout_s: 30
"""

SUITE = """
name: fake-suite
steps:
  - {step: smoke, items: 5}
  - {step: memory, output_tokens: 16}
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 64, output_tokens: 128, repeats: 3, requests: 2}
      - {name: short c=2, context_tokens: 64, output_tokens: 128, repeats: 3, requests: 8, concurrency: 2}
      - {name: natural c=1, context_tokens: 64, output_tokens: 96, repeats: 2, stream_requests: 0, natural: true}
  - {step: load, dataset: twin, requests_per_category: 2, concurrencies: [1, 2], max_tokens: 32}
  - {step: depth, prompts: prose, depths: [0, 256], pp_tokens: 128, tg_tokens: 64, repeats: 2, peak_window_s: 0.1}
  - step: prompts
    concurrencies: [1, 2]
    repeats: 2
    workloads:
      - {name: qa, language: English, prompt: "What is this?", max_tokens: 64}
      - name: code
        language: Python
        prompt: Write a Python program that reads numbers and prints their sum.
        max_tokens: 64
        check: {cases: [{stdin: 1 2 3, stdout: "6"}]}
  - {step: parity, prompts: prose, n_prompts: 3, context_tokens: 64, output_tokens: 32}
  - {step: needle, context_tokens: [512], seeds: 3, max_tokens: 64}
  - {step: eval-tiny, items: 24, seed: 7}
"""

FORWARDS, MIDDLE, BACK = 1, 2, 3


def measured(folder: Path, store_url: str) -> None:
    """The run `r1`, by the node runner."""
    folder.mkdir()
    box = FakeBox(folder / "box")
    box.card()
    engine = folder / "box" / "fake-engine"
    engine.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT}/tests/fake_engine.py "$@"\n')
    engine.chmod(0o755)
    env = box.env | {
        "PYTHONPATH": os.pathsep.join((str(ROOT / "tests" / "fake_nvml"), str(ROOT))),
        "FAKE_ENGINE_TOKEN_S": "0.003",
    }
    fake_run.ENGINE = ENGINE
    run = fake_run.FakeRun(folder, "ar mtp", store_url, SUITE, visits="mirrored", max_model_len=1024)
    node = subprocess.run([ROOT / "bin/environment", "node"], check=True, text=True, stdout=subprocess.PIPE)
    cells = [run.cell(index) for index in range(len(run.cells))]
    for leg, order in ((FORWARDS, cells), (MIDDLE, cells[:1]), (BACK, cells[::-1])):
        for cell in order:
            code, said = cell.finish(Path(node.stdout.strip()), arguments=("--leg", str(leg)), **env)
            print(said)
            assert code == 0, f"{cell.planned.cell.label}, leg {leg}: exit {code}"


def made_up(store: Store) -> None:
    """The run `made-up`, with an evaluation of every cell but the last."""
    plan = mirrored_demo()
    plan = plan.model_copy(
        update={"cells": tuple(each.model_copy(update={"steps": (*each.steps, GPQA)}) for each in plan.cells)}
    )
    write_demo_run(store, "made-up", plan=plan)
    ledger = Ledger(store, "made-up")
    for index, planned in enumerate(plan.cells[:-1]):
        right = set(range(index % 3, 150 + index % 3))
        step = StepWriter(ledger, planned.cell.cell_key, "eval-gpqa").write(EVAL_SAMPLES, answers(198, right))
        step.write(EVAL_SCORES, [score("acc", len(right) / 198, 198)])
        step.provenance().judge((None, None, "ok", [], [])).commit(wall_s=90.0)


def main() -> None:
    """Make both runs, publish them, and pack the store."""
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "store")
        measured(Path(folder) / "run", url)
        made_up(open_store(url))
        publish(open_store(url))
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as packed:
            for name in ("runs", "snapshots"):
                packed.add(Path(url) / name, name)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
