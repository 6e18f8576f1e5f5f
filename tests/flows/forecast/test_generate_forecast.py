"""The forecast of the transformers engine: one request after the other, at the one published rate."""

from __future__ import annotations

import pytest

from configs.expand import expand
from configs.load import load_gpu, load_sweep
from flows.forecast.decoding import at_once, decode_tok_s
from flows.forecast.forecast import forecast
from warehouse.published.read import load_write_up


def test_the_rate_is_that_of_its_source_and_more_requests_make_a_queue() -> None:
    plan, gpu = expand(load_sweep("transformers")), load_gpu("h100")
    cell = plan.cells[0].cell
    source = next(row for row in load_write_up("mtp-transformers-h100").rows if row.technique == "ar")
    assert decode_tok_s(cell, gpu, 1088) == pytest.approx(source.tok_s, rel=0.05)
    assert at_once(cell, gpu, 16, 600) == 1


def test_the_plan_says_what_it_rests_on_and_fits_its_own_budget() -> None:
    plan = expand(load_sweep("transformers"))
    result = forecast(plan, {})
    assert any(said.startswith("generate() of transformers") for said in result.assumptions)
    assert plan.cloud is not None and plan.cloud.budget.run_usd is not None
    assert sum(cell.usd_spot or 0 for cell in result.cells) < plan.cloud.budget.run_usd
    tiny = forecast(expand(load_sweep("tiny-quick")), {})
    assert not any("generate()" in said for said in tiny.assumptions)
