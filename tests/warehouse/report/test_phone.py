"""What a phone shows of a table before anybody scrolls: its first three columns or so."""

from __future__ import annotations

import re

from tests.warehouse.report.rows import AR, MTP, seen
from warehouse.display.markup import Markup
from warehouse.display.speed_sections import baseline_section
from warehouse.report.trust_sections import flagged_section


def columns(shown: Markup | None) -> list[str]:
    return re.findall(r'<th scope="col"[^>]*>([^<]*)<', shown or "")


def test_a_baseline_has_its_verdict_beside_its_rate() -> None:
    suspect = AR | {"verdict": "suspect"}
    assert columns(baseline_section(seen(suspect)))[:4] == ["technique", "condition", "verdict", "tok/s"]


def test_what_is_flagged_says_why_before_anything_else() -> None:
    flagged = MTP | {"verdict": "suspect", "reasons": ["unsteady"]}
    assert columns(flagged_section(seen(AR, flagged)))[:3] == ["technique", "reasons", "condition"]
