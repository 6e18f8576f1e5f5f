"""The tiny twin of `transformers`, whole: the real generate() on the CPU, the real family, an engine killed amid it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import polars as pl
import pytest

from configs.cell import Cell
from configs.load import load_technique
from flows.plans import make_plan
from tasks import meters
from tasks.client import Client
from tasks.engine.command import engine_command
from tasks.engine.server import Engine, free_port
from tasks.prompts import Prompt
from tests.engine.tiny_runs import SoundTwin, TinyRun, finish, results, start, watched
from warehouse.ledger.commits import rows_in_force
from warehouse.ledger.timed_tables import REQUESTS

pytestmark = [pytest.mark.engine, pytest.mark.slow(180)]

SERVER = "tasks.transformers_engine"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """A finished run whose last cell lost its engine to `kill -9` in the parity step."""
    run = TinyRun("transformers-tiny", tmp_path_factory.mktemp("transformers"))
    with watched(run.folder):
        process = start("transformers-tiny", run.folder)
        run.wait_in("mtp", "parity")
        assert len(run.processes(SERVER)) == 1, "one engine at a time"
        run.kill(SERVER)
        finish(process, 1800)
    return run


def rows_of(run: TinyRun, step: str) -> pl.DataFrame:
    return results(run.store).filter(step=step)


def test_an_engine_that_is_killed_is_noticed_as_dead_and_its_cell_goes_on(run: TinyRun) -> None:
    first, *_, last = run.attempts("mtp")
    assert first.outcome == "failed" and first.reason.startswith("the engine died"), first.reason
    assert last.outcome == "completed"
    assert run.processes() == [], "nothing is left behind"


def test_drafts_are_counted_as_vllm_counts_them(run: TinyRun) -> None:
    rows = rows_of(run, "throughput").filter(mode="fixed").sort("technique")
    assert rows["technique"].to_list() == ["ar", "draft_model", "mtp"] and rows["tok_s"].null_count() == 0
    assert rows.filter(technique="ar")["acceptance_length"].to_list() == [None]
    drafting = rows.filter(pl.col("technique") != "ar")
    assert 1.2 < drafting["acceptance_length"].min() <= drafting["acceptance_length"].max() <= 5  # type: ignore[operator]
    assert drafting["acceptance_by_position"].list.len().to_list() == [4, 4]
    for key in run.keys.values():
        commit = run.ledger.read_commit(key, "throughput")
        assert commit is not None
        for row in rows_in_force(run.ledger, commit, REQUESTS):
            assert row["engine_ttft_ms"] > 0 and row["engine_queue_ms"] is not None


def test_streams_give_the_latencies(run: TinyRun) -> None:
    streams = rows_of(run, "throughput").filter(mode="stream")
    assert streams.height == 3
    for column in ("ttft_ms", "tpot_ms"):
        assert streams[column].null_count() == 0


def test_greedy_outputs_are_those_of_the_target_alone(run: TinyRun) -> None:
    parity = rows_of(run, "parity").filter(pl.col("technique") != "ar")
    assert parity["parity_equal"].to_list() == parity["parity_n"].to_list() == [4, 4]


class TestTransformers(SoundTwin):
    @pytest.fixture
    def store(self, run: TinyRun) -> Path:
        return run.store


def test_the_family_answers(run: TinyRun) -> None:
    scores = rows_of(run, "eval-tiny").filter(extractor="last-letter", metric="accuracy")
    assert scores.height == 3 and scores["score"].min() >= 0.75  # type: ignore[operator]


def test_memory_is_told_with_and_without_an_assistant(run: TinyRun) -> None:
    rows = {row["technique"]: row for row in rows_of(run, "memory").to_dicts()}
    assert sorted(rows) == ["ar", "draft_model", "mtp"]
    for technique, row in rows.items():
        assert (row["verdict"], row["condition"], row["visits"]) == ("ok", "full context", 2), row
        assert row["context_tokens"] + row["output_tokens"] == 2048
        assert row["host_peak_bytes"] > row["weights_bytes"] > 0
        if technique != "ar":
            assert row["weights_bytes"] > rows["ar"]["weights_bytes"], "the assistant's are in it"
        assert row["engine_memory_peak_bytes"] is row["kv_tokens"] is None, "no card, and no cache that is kept"


def test_rows_name_the_engine_and_how_it_was_started(run: TinyRun) -> None:
    rows = rows_of(run, "throughput").filter(technique="draft_model")
    assert set(rows["engine"]) == {"transformers-cpu"}
    assert all("(torch " in version for version in rows["engine_version"])
    assert all("--num-assistant-tokens 4" in argv for argv in rows["argv"])


TOKENS = 96


async def counted_of(cell: Cell, workdir: Path) -> meters.Counters:
    """What the real server counts over two requests of TOKENS tokens."""
    port = free_port()
    engine = Engine(engine_command(cell, port, workdir), port, workdir, cell.engine.start_timeout_s)
    try:
        await engine.start(lambda _: None)
        async with Client(engine.base_url, cell.model, cell.technique) as client:
            for text in ("what color is fox ?", "list the animals"):
                await client.complete(client.request(Prompt(text), TOKENS, fixed=True))
            return meters.parse(await client.text("/metrics"))
    finally:
        engine.stop()


@pytest.mark.parametrize(("technique", "moves"), [("draft_model-heuristic", True), ("draft_model", False)])
def test_a_k_that_moves_is_counted_as_it_was_drafted(tmp_path: Path, technique: str, moves: bool) -> None:
    drafting = next(each.cell for each in make_plan("transformers-tiny").cells if each.cell.draft is not None)
    cell = drafting.model_copy(update={"technique": load_technique(technique)})
    counted, k = asyncio.run(counted_of(cell, tmp_path)), cell.k
    assert k and counted.drafts and counted.draft_tokens and counted.accepted_tokens and counted.accepted_by_position
    assert counted.accepted_tokens + counted.drafts <= 2 * TOKENS, "each step commits one more"
    assert sum(counted.accepted_by_position) == counted.accepted_tokens
    near_the_end = 2 * k  # steps of two requests, which may draft fewer
    assert (abs(counted.draft_tokens - k * counted.drafts) > near_the_end * k) is moves
