"""`sweep regrade`: better readers over old answers change what they should, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows.terminal.regrade import regrade
from tests.flows.conftest import Finish
from tests.graded_run import write_graded_run
from warehouse.ledger.commits import Commit, Ledger, in_force, read_regrade, rows_in_force
from warehouse.ledger.steps.evaluation import EVAL_SAMPLES, EVAL_SCORES, EXCHANGES
from warehouse.ledger.store import StoreError, open_store
from warehouse.ledger.tables import PROVENANCE, VERDICTS, Table


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(open_store(str(tmp_path / "store")), "old")


def contents(ledger: Ledger) -> dict[str, bytes | None]:
    return {key: ledger.store.get(key) for key in ledger.store.list("runs")}


@pytest.mark.slow(6)
def test_the_command_shows_before_and_after_and_records_it_once(
    tmp_path: Path, ledger: Ledger, finish_sweep: Finish
) -> None:
    write_graded_run(ledger)
    said = finish_sweep("regrade", "old", "--dry-run")
    assert "last-in-body" in said and "0.250" in said and "0.750" in said
    assert "1 steps changed, 1 read the same by another version, would be recorded (--dry-run), 0 unchanged" in said
    assert "eval-ifeval: what the framework's own checkers said when it was measured stands" in said
    assert "eval-tiny: has no response log, left as it is" in said
    assert not list(tmp_path.rglob("regrades"))

    gpqa, ifeval, tiny = json.loads(finish_sweep("regrade", "old", "--json"))["steps"]
    assert gpqa["readers"] == [{"reader": "last-in-body", "before": 0.25, "after": 0.75, "items": 6}]
    assert (gpqa["state"], gpqa["regrade"]) == ("changed", 1)
    assert gpqa["verdict"] == {"before": "rejected", "after": "suspect"}
    assert gpqa["reasons"] == {"before": ["at_chance", "engine_preemption"], "after": ["engine_preemption"]}
    assert (ifeval["state"], ifeval["framework_stands"], tiny["state"]) == ("confirmed", True, "no response log")
    assert ifeval["regrade"] == 1, "arms are only compared where readers of one version graded both"

    before = contents(ledger)
    assert "0 steps changed, 2 unchanged" in finish_sweep("regrade", "old")
    assert contents(ledger) == before, "nothing changed, so nothing is written"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("regrade", "none"), "no run 'none'"), (("regrade", "old", "--cell", "zz"), "no cell 'zz': use one of")],
)
def test_a_run_or_cell_that_is_not_there_is_one_line(
    ledger: Ledger, finish_sweep: Finish, arguments: tuple[str, ...], words: str
) -> None:
    write_graded_run(ledger)
    said = finish_sweep(*arguments, code=1)
    assert words in said and len(said.splitlines()) == 1


def test_what_was_measured_stays_byte_for_byte(ledger: Ledger) -> None:
    write_graded_run(ledger)
    before = contents(ledger)
    regrade(ledger, None, dry_run=False)
    after = contents(ledger)
    assert {key: after[key] for key in before} == before
    assert {key.split("/steps/")[1].split("/")[0] for key in set(after) - set(before)} == {"eval-gpqa", "eval-ifeval"}


def test_only_the_reading_and_what_follows_from_it_changes(ledger: Ledger) -> None:
    key = write_graded_run(ledger).cell.cell_key
    regrade(ledger, None, dry_run=False)
    measured = ledger.read_commit(key, "eval-gpqa")
    assert measured is not None
    now = in_force(measured, read_regrade(ledger, key, "eval-gpqa", 1))

    def rows(commit: Commit, table: Table) -> list[dict[str, object]]:
        return list(rows_in_force(ledger, commit, table))

    for table in (EXCHANGES, PROVENANCE):
        assert rows(now, table) == rows(measured, table)
    differing = set()
    for old, new in zip(rows(measured, EVAL_SAMPLES), rows(now, EVAL_SAMPLES), strict=True):
        differing |= {name for name in new if new[name] != old[name]}
    assert differing == {"last_in_body", "correct", "extractor_version"}
    old_scores, new_scores = (
        {(row["source"], row["extractor"]): row["value"] for row in rows(commit, EVAL_SCORES)}
        for commit in (measured, now)
    )
    assert old_scores[("ours", "last-in-body")] == 0.25 and new_scores[("ours", "last-in-body")] == 0.75
    del old_scores[("ours", "last-in-body")], new_scores[("ours", "last-in-body")]
    assert new_scores == old_scores, "the framework's scores and the other readers'"
    (verdict,) = rows(now, VERDICTS)
    assert (verdict["verdict"], verdict["details"]) == ("suspect", ["the engine preempted 3 requests"])
    assert (now.verdict, now.reasons, now.wall_s) == ("suspect", ("engine_preemption",), measured.wall_s)


def test_answers_that_todays_readers_graded_are_left_alone(ledger: Ledger) -> None:
    write_graded_run(ledger, version=1)
    before = contents(ledger)
    states = [graded.state for graded in regrade(ledger, None, dry_run=False)]
    assert states == ["unchanged", "unchanged", "no response log"]
    assert contents(ledger) == before


def test_a_step_that_is_not_committed_is_not_graded(ledger: Ledger) -> None:
    key = write_graded_run(ledger).cell.cell_key
    (Path(ledger.store.url) / f"runs/old/cells/{key}/steps/eval-gpqa/commit.json").unlink()
    assert [graded.step for graded in regrade(ledger, None, dry_run=False)] == ["eval-ifeval", "eval-tiny"]


def test_a_response_log_that_was_tampered_with_is_refused(ledger: Ledger) -> None:
    key = write_graded_run(ledger).cell.cell_key
    (part, *_) = (Path(ledger.store.url) / f"runs/old/cells/{key}/steps/eval-gpqa/parts").glob("exchanges-*")
    part.write_bytes(b"other")
    with pytest.raises(StoreError, match="not the file its commit names"):
        regrade(ledger, key[:4], dry_run=False)
