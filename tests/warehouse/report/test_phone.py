"""What a phone shows of a table before anybody scrolls: its first three columns or so."""

from __future__ import annotations

import re

from tests.warehouse.report.rows import AR, MTP, seen, viewed
from tests.warehouse.report.started import speed_pair
from warehouse.report.display.markup import Markup
from warehouse.report.steps.throughput import baseline_section, speed_section
from warehouse.report.trust_sections import flagged_section


def columns(shown: Markup | None) -> list[str]:
    return re.findall(r'<th scope="col"[^>]*>([^<]*)<', shown or "")


def test_a_baseline_has_its_verdict_beside_its_rate() -> None:
    suspect = AR | {"verdict": "suspect"}
    assert columns(baseline_section(seen(suspect)))[:4] == ["technique", "condition", "verdict", "tok/s"]


def test_what_is_flagged_says_why_before_anything_else() -> None:
    flagged = MTP | {"verdict": "suspect", "reasons": ["unsteady"]}
    assert columns(flagged_section(seen(AR, flagged)))[:3] == ["technique", "reasons", "condition"]


def test_what_was_found_stands_before_what_else_is_known_of_a_flagged_row() -> None:
    flagged = MTP | {"verdict": "suspect", "reasons": ["unsteady"], "details": ["repeats differ by 24%"]}
    assert columns(flagged_section(seen(AR, flagged)))[4] == "what was found", "behind five more it is cut off"


def test_every_source_on_the_page_has_a_sign_of_its_own() -> None:
    rows = [MTP | {"cell_key": at, "acceptance_source": f"replayed:{at}"} for at in ("one", "two")]
    view = viewed([AR, *rows], [speed_pair(row) for row in rows])
    shown = speed_section(view) or ""
    assert ">‡ acceptance replayed from one; ‡² acceptance replayed from two</p>" in shown
    assert ">mtp K=4‡</th>" in shown and ">mtp K=4‡²</th>" in shown
    [bars] = shown.split("<svg")[1:]
    assert ">mtp K=4‡²</text>" in bars and ">‡² acceptance replayed from two</text>" in bars
    alone = viewed([AR, rows[1]], [speed_pair(rows[1])])
    assert ">‡ acceptance replayed from two</p>" in (speed_section(alone) or "")
    assert [(pair["cell_key"], pair["replay_number"]) for pair in view.pairs] == [("one", 1), ("two", 2)]
