"""The tiny twin of `transformers`, whole: the real generate() on the CPU, the real family, an engine killed amid it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from configs.expand import default_run_id
from flows.plans import make_plan
from tests.command_lines import command_of
from tests.engine.tiny_store import finish, start, watched
from tests.engine.twin_rows import accusations, assert_two_starts_are_told, empty_columns, results
from tests.tasks.test_cell import processes_with, wait_until
from warehouse.ledger.commits import Ledger, rows_in_force
from warehouse.ledger.lease import Leases
from warehouse.ledger.store import open_store
from warehouse.ledger.timed_tables import REQUESTS

pytestmark = [pytest.mark.engine, pytest.mark.slow(150)]

SERVER = "tasks.transformers_engine"


class Run:
    """A finished run whose last cell lost its engine to `kill -9` in the parity step."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.state = folder, folder / "store", folder / "state"
        plan = make_plan("transformers-tiny")
        self.ledger = Ledger(open_store(str(self.store)), default_run_id(plan))
        self.keys = {planned.cell.technique.name: planned.cell.cell_key for planned in plan.cells}

    def is_in(self, key: str, step: str) -> bool:
        beat = Leases(self.ledger, key).heartbeat()
        return beat is not None and beat.step == step and self.ledger.read_commit(key, step) is None

    def servers(self) -> list[int]:
        mine = processes_with(str(self.state))
        return [pid for pid in mine if SERVER in command_of(pid)]

    def measure(self) -> None:
        with watched(self.folder):
            run = start("transformers-tiny", self.folder)
            wait_until(lambda: self.is_in(self.keys["mtp"], "parity"), "the MTP cell in its parity step", 900)
            (server,) = self.servers()
            os.kill(server, signal.SIGKILL)
            finish(run, 1800)

    def rows(self, step: str) -> pl.DataFrame:
        return results(self.store).filter(step=step)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Run(tmp_path_factory.mktemp("transformers"))
    made.measure()
    return made


def test_an_engine_that_is_killed_is_noticed_as_dead_and_its_cell_goes_on(run: Run) -> None:
    first, *_, last = Leases(run.ledger, run.keys["mtp"]).attempts()
    assert first.outcome == "failed" and first.reason.startswith("the engine died"), first.reason
    assert last.outcome == "completed"
    assert run.servers() == [] and processes_with(str(run.state)) == [], "nothing is left behind"


def test_drafts_are_counted_as_vllm_counts_them(run: Run) -> None:
    rows = run.rows("throughput").filter(mode="fixed").sort("technique")
    assert rows["technique"].to_list() == ["ar", "draft_model", "mtp"] and rows["tok_s"].null_count() == 0
    assert rows.filter(technique="ar")["acceptance_length"].to_list() == [None]
    drafting = rows.filter(pl.col("technique") != "ar")
    assert 1.2 < drafting["acceptance_length"].min() <= drafting["acceptance_length"].max() <= 5  # type: ignore[operator]
    assert drafting["acceptance_by_position"].list.len().to_list() == [4, 4]
    requests = [row for key in run.keys.values() for row in _requests(run, key)]
    assert all(row["engine_ttft_ms"] > 0 and row["engine_queue_ms"] is not None for row in requests)


def _requests(run: Run, key: str) -> list[dict[str, Any]]:
    commit = run.ledger.read_commit(key, "throughput")
    assert commit is not None
    return list(rows_in_force(run.ledger, commit, REQUESTS))


def test_streams_give_the_latencies(run: Run) -> None:
    streams = run.rows("throughput").filter(mode="stream")
    assert streams.height == 3
    for column in ("ttft_ms", "tpot_ms"):
        assert streams[column].null_count() == 0


def test_greedy_outputs_are_those_of_the_target_alone(run: Run) -> None:
    parity = run.rows("parity").filter(pl.col("technique") != "ar")
    assert parity["parity_equal"].to_list() == parity["parity_n"].to_list() == [4, 4]


def test_what_both_starts_tell_of_a_speed_is_filled_in(run: Run) -> None:
    assert_two_starts_are_told(run.store)


def test_every_column_that_is_due_is_filled_in(run: Run) -> None:
    assert empty_columns(run.store) == []


def test_the_family_answers_and_no_guard_accuses_it(run: Run) -> None:
    scores = run.rows("eval-tiny").filter(extractor="last-letter", metric="accuracy")
    assert scores.height == 3 and scores["score"].min() >= 0.75  # type: ignore[operator]
    assert accusations(results(run.store)) == []


def test_memory_is_told_with_and_without_an_assistant(run: Run) -> None:
    rows = {row["technique"]: row for row in run.rows("memory").to_dicts()}
    assert sorted(rows) == ["ar", "draft_model", "mtp"]
    for technique, row in rows.items():
        assert (row["verdict"], row["condition"], row["visits"]) == ("ok", "full context", 2), row
        assert row["context_tokens"] + row["output_tokens"] == 2048
        assert row["host_peak_bytes"] > row["weights_bytes"] > 0
        if technique != "ar":
            assert row["weights_bytes"] > rows["ar"]["weights_bytes"], "the assistant's are in it"
        assert row["engine_memory_peak_bytes"] is None and row["kv_tokens"] is None, (
            "no card, and no cache that is kept"
        )


def test_rows_name_the_engine_and_how_it_was_started(run: Run) -> None:
    rows = run.rows("throughput").filter(technique="draft_model")
    assert set(rows["engine"]) == {"transformers-cpu"}
    assert all("(torch " in version for version in rows["engine_version"])
    assert all("--num-assistant-tokens 4" in argv for argv in rows["argv"])
