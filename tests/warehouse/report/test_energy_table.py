"""Energy on the page: columns that stand side by side are of the same seconds, and small figures keep their digits."""

from __future__ import annotations

import re

import pytest

from tests.warehouse.report.rows import row, seen
from warehouse.report.display.figures import NOTHING, significant
from warehouse.report.steps.memory import memory_section


def test_tokens_per_watt_are_the_quotient_of_what_stands_beside_them() -> None:
    told = row("ar", 4400.0, power_w=250.0, energy_j_per_token=0.0625, throttle_reasons=[])
    shown = memory_section(seen(told)) or ""
    cells = re.findall(r'<td class="n">([^<]*)', shown.partition("Energy of each load")[2])
    assert cells == ["4\N{NARROW NO-BREAK SPACE}000", "250", "0.0625", "16.0"], "of the steady state it is 4400"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0625, "0.0625"),
        (0.4567, "0.457"),
        (4.567, "4.57"),
        (45.67, "45.7"),
        (4567.8, "4\N{NARROW NO-BREAK SPACE}568"),
        (None, NOTHING),
    ],
)
def test_a_figure_has_three_digits_however_small_it_is(value: float | None, said: str) -> None:
    assert significant(value) == said
