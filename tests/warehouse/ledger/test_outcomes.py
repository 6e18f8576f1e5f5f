"""The table of endings: whole, of one mind with what it makes records say, and as docs/operations.md shows it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from warehouse.ledger.outcomes import ENDINGS, AttemptOutcome, Ended, EndingRow, Fault, ended_with
from warehouse.ledger.placement import PlacementEnd

HEADER = (
    "| how it ended | `ended` | `outcome` | exit code | whose fault | failed try | towards on demand | avoided for "
    "| meaning |"
)

RECORDED = {
    "done", "no_capacity", "refused", "preempted", "notice", "setup_failed", "silent", "autodowned", "job_failed",
    "launch_failed", "stopped",
}  # fmt: skip
"""Words that stores have in `placements/*.end.json`."""


def on_the_page(row: EndingRow) -> str:
    cells = (
        f"`{row.ended}`",
        f"`{row.recorded}`",
        "" if row.outcome is None else f"`{row.outcome}`",
        "" if row.exit_code is None else row.exit_code,
        row.fault,
        "yes" if row.is_failed_try else "no",
        "yes" if row.is_lost_machine else "no",
        f"{row.avoided_s / 60:.0f} min" if row.avoided_s else "no",
        row.meaning,
    )
    return f"| {' | '.join(map(str, cells))} |"


def test_the_page_shows_every_ending_with_these_values(repo_root: Path) -> None:
    page = (repo_root / "docs" / "operations.md").read_text(encoding="utf-8").splitlines()
    first = page.index(HEADER) + 2
    shown = page[first : page.index("", first)]
    assert shown == [on_the_page(row) for row in ENDINGS.values()]


def test_every_ending_has_a_row_and_every_word_is_used() -> None:
    assert list(ENDINGS) == list(Ended), "in one order, too"
    assert {row.outcome for row in ENDINGS.values()} == {*get_args(AttemptOutcome), None}
    assert {row.fault for row in ENDINGS.values()} == set(Fault)


def test_records_keep_the_words_that_stores_have() -> None:
    assert {row.recorded for row in ENDINGS.values()} == RECORDED
    for word in RECORDED:
        assert PlacementEnd.model_validate({"at": "", "outcome": word}).outcome == word
    with pytest.raises(ValidationError, match="recorded as 'stopped'"):
        PlacementEnd.model_validate({"at": "", "outcome": "reaped"})


@pytest.mark.parametrize("row", ENDINGS.values(), ids=list(ENDINGS))
def test_the_next_flow_reads_off_the_record_what_this_one_has_seen(row: EndingRow) -> None:
    recorded = row.recorded.row
    assert recorded.recorded is row.recorded
    assert recorded.is_lost_machine == row.is_lost_machine
    assert recorded.avoided_s == row.avoided_s
    assert row.ended.loss == (row.recorded if row.avoided_s else None)


@pytest.mark.parametrize("row", ENDINGS.values(), ids=list(ENDINGS))
def test_the_columns_of_a_row_agree(row: EndingRow) -> None:
    lost = ("failed", "lost", "notice")
    assert row.is_lost_machine <= (row.outcome in lost), "nothing was rented, or it did not fail"
    assert row.is_lost_machine <= (row.avoided_s > 0), "who was lost may be lost there again"
    assert not (row.is_failed_try and row.fault is Fault.CLOUD), "spot nodes vanish, and the policy bounds how often"


def test_exit_codes_are_promised() -> None:
    codes = {row.exit_code: row.ended for row in ENDINGS.values() if row.exit_code is not None}
    assert codes == {
        0: "done", 1: "failed", 3: "rejected", 75: "lease_held", 76: "superseded", 77: "notice", 143: "stopped",
    }  # fmt: skip
    assert {ended_with(code) for code in codes} == set(codes.values())
    assert all(ended.exit_code == code for code, ended in codes.items())
    assert [ended_with(code) for code in (-9, 137, 2)] == [Ended.KILLED] * 3
    with pytest.raises(ValueError, match="preempted"):
        _ = Ended.PREEMPTED.exit_code


def test_a_bare_node_can_import_it() -> None:
    code = "import sys; import warehouse.ledger.outcomes; assert not {'polars', 'pydantic'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", code], check=True)
