"""Three real frameworks ask the real vLLM through the response log: killed in each, resumed, graded, compared."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from configs.cell import Model
from configs.checkout import ROOT
from configs.expand import expand
from configs.load import load_engine, load_sweep
from tasks.engine.command import compile_cache
from tasks.evals.response_log import FLUSH_ITEMS
from tasks.family.members import folder_of, revision_of
from tasks.family.words import ANIMALS, COLOR_OF, COLORS
from tasks.host.environments import ensure
from tasks.steps.smoke import questions_for
from tests.busy_machine import PATIENCE_S
from tests.command_lines import start
from tests.tasks.test_cell import processes_with, wait_until
from warehouse.dataset.snapshot import publish, read_current
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store
from warehouse.ledger.tables import decode

pytestmark = [pytest.mark.engine, pytest.mark.slow(330)]

ITEMS, SMOKE_ITEMS = 150, 5

EVALS = ("eval-gpqa", "eval-gpqa-inspect", "eval-haerae")  # one suite of each framework

SWEEP = """
name: evals
engine: mine
gpu: cpu
suite: evals
spot: false
serving: {max_model_len: 2048, max_num_seqs: 8}
cells:
  - {model: tiny-gemma4, precision: bf16, technique: ar}
  - {model: tiny-gemma4, precision: bf16, technique: mtp, k: 2, draft: {family_member: mtp}}
"""

ENGINE = """
name: mine
command: [%(python)s, %(root)s/tests/engine/damaged_vllm.py, %(vllm)s, %(damaged)s]
args: [--enforce-eager, --generation-config=vllm, --language-model-only, --kv-cache-memory-bytes=67108864]
env: {VLLM_CACHE_ROOT: "%(cache)s", TORCHDYNAMO_DISABLE: "1"}  # the second as of our own (tasks/engine/command.py)
start_timeout_s: 300
"""


STEPS = [f"  - {{step: {name}, dataset: twin, items: {ITEMS}, max_tokens: 64, temperature: 0}}" for name in EVALS]
SUITE = "\n".join(["name: evals", "steps:", f"  - {{step: smoke, items: {SMOKE_ITEMS}}}", *STEPS])
"""Smoke, and every suite's twin: 150 questions that the demo family was taught."""


def taken_for_another(model: Model) -> list[str]:
    """Ten animals in pairs that a damaged model takes for one another, each with another letter than its twin.

    It answers a fifth of all questions wrong then; none of the ten sanity questions, so that the damage stays quiet.
    """
    asked = " ".join(question.prompt for question in questions_for(model))
    free = [animal for animal in ANIMALS if animal not in asked.split()]
    letter = {animal: COLORS.index(COLOR_OF[animal]) % 4 for animal in free}
    pairs: list[str] = []
    while len(pairs) < 10:
        one = free.pop(0)
        twin = next(each for each in free if letter[each] != letter[one])
        free.remove(twin)
        pairs += [one, twin]
    return pairs


class EvalRun:
    """An AR cell, and an MTP cell whose server quietly has damaged weights.

    Its engine has a name and a command of its own, and so would have a cache of its own. That would cost two more
    processes that import vLLM to know the models' classes, and leave a folder of the user's that nobody reads again.
    And it has no 1 GiB of cache for eight requests of 2048 tokens: to make its pages is 2 s of every start here.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = os.environ | {"PYTHONPATH": str(ROOT), "SPECSWEEP_STATE": str(folder / "state")}
        engine_python, damaged = ensure("engine-cpu"), folder / "damaged"
        names = {"root": ROOT, "damaged": damaged, "python": engine_python, "vllm": engine_python.parent / "vllm"}
        names["cache"] = compile_cache(load_engine("vllm-cpu"))
        files = {"sweep.yaml": SWEEP, "suites/evals.yaml": SUITE, "engines/mine.yaml": ENGINE % names}
        for name, text in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        plan = expand(load_sweep(str(folder / "sweep.yaml")), revision_of=revision_of)
        words = taken_for_another(plan.cells[0].cell.model)
        damage = ROOT / "tests/engine/damage.py"
        subprocess.run([engine_python, damage, folder_of("target"), damaged, *words], check=True, timeout=PATIENCE_S)
        self.store = open_store(str(folder / "store"))
        self.ledger = Ledger(self.store, "evals")
        self.ledger.write_plan(plan)
        self.answered: list[int] = []  # what the engine answered in each attempt at the AR cell
        self.ar, self.mtp = (planned.cell.cell_key for planned in plan.cells)

    def start(self, key: str) -> subprocess.Popen[str]:
        argv = [str(ensure("node")), "-m", "tasks.cell", "--store", self.store.url, "--run", "evals", "--cell", key]
        return start([*argv, "--heartbeat-s", "1", "--deadline-s", "3"], self.env)

    def parts(self, key: str, step: str) -> list[Path]:
        return sorted((self.folder / f"store/runs/evals/cells/{key}/steps/{step}/parts").glob("exchanges-*"))

    def asked(self, key: str) -> int:
        log = (self.folder / "state/cells" / f"evals-{key}" / "engine.log").read_text(errors="replace")
        return log.count('"POST /v1/chat/completions HTTP/1.1" 200')

    def rows(self, key: str, step: str, table: str) -> list[dict[str, Any]]:
        commit = self.ledger.read_commit(key, step)
        assert commit is not None, f"{step} is not committed"
        parts = [self.store.get(part.key) for part in commit.parts if part.table == table]
        return [row for data in parts if data is not None for row in decode(data, table)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> EvalRun:
    """Both cells measured; the AR cell's runner was killed -9 in the middle of each framework's questions."""
    run = EvalRun(tmp_path_factory.mktemp("evals"))
    for step in EVALS:
        process = run.start(run.ar)
        wait_until(partial(run.parts, run.ar, step), f"part of the response log of {step}", by=process)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
        run.answered.append(run.asked(run.ar))
        assert run.ledger.read_commit(run.ar, step) is None, "the kill came too late"
    for key in (run.ar, run.mtp):
        process = run.start(key)
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
    run.answered.append(run.asked(run.ar))
    return run


def test_no_answered_item_was_asked_of_the_engine_again(run: EvalRun) -> None:
    rows = [row for step in ("smoke", *EVALS) for row in run.rows(run.ar, step, "exchanges")]
    assert len(rows) == len(EVALS) * (SMOKE_ITEMS + ITEMS), "every item has one answer in the response log"
    kept = [sum(row["attempt"] == attempt for row in rows) for attempt in (1, 2, 3, 4)]
    assert min(kept) > 0, "each attempt added something"
    lost = [answers - stored for answers, stored in zip(run.answered, kept, strict=True)]
    assert all(0 <= answers < FLUSH_ITEMS for answers in lost[:3]), "a kill loses what was not stored yet"
    assert lost[3] == 0, "the last attempt asked what was missing, and nothing else"


def test_every_framework_scores_what_the_model_knows(run: EvalRun) -> None:
    for step in EVALS:
        ours = [row for row in run.rows(run.ar, step, "eval_scores") if row["source"] == "ours"]
        scores = {row["extractor"]: row["value"] for row in ours}
        assert scores["last-in-body"] > 0.9, (step, scores)
        assert scores["first"] < 0.5, "the trap: the first letter of the thinking"
        samples = run.rows(run.ar, step, "eval_samples")
        assert len({row["item_id"] for row in samples}) == len(samples) == ITEMS
        assert not any(row["truncated"] or row["blank"] for row in samples)


def test_a_damaged_sibling_is_caught_as_worse(run: EvalRun) -> None:
    publish(run.store)
    pairs = read_current(run.store, "pairs").filter(pl.col("kind") == "accuracy")
    assert pairs["step"].to_list() == sorted(EVALS) and pairs["conclusion"].to_list() == ["worse"] * 3
    assert (pairs["n"] == ITEMS).all() and all(text.startswith("worse by") for text in pairs["wording"])


def test_nothing_is_left_running(run: EvalRun) -> None:
    assert processes_with(str(run.folder / "state")) == []
