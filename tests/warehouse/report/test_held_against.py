"""A model that is held against another one's AR, as a diffusion model against the one that it was made from."""

from __future__ import annotations

from configs.cell import Model
from tests.warehouse.report.rows import AR, row, seen, text_of, viewed
from tests.warehouse.report.started import placebo, speed_pair
from tests.warehouse.synthetic import demo_plan, only
from tests.warehouse.visited import VisitedRun
from warehouse.ledger.store import Store
from warehouse.report.display.claims import control_of, doubts
from warehouse.report.steps.throughput import speed_section

OTHER = {"model": "diffuser", "compared_as": "m"}
DIFFUSION = row("diffusion", 240.0, speedup=3.0, speedup_lo=2.94, speedup_hi=3.06, **OTHER)
SCORED = {"step": "eval-gpqa", "condition": None, "mode": None, "metric": "accuracy", "extractor": "last-letter"}


def test_rows_and_pairs_name_the_model_whose_ar_they_are_compared_with(local: Store) -> None:
    cells = demo_plan().cells
    named: Model = cells[1].cell.model.model_copy(update={"name": "diffuser", "held_against": "tiny-gemma4"})
    other = cells[1].model_copy(update={"cell": cells[1].cell.model_copy(update={"model": named})})
    run = VisitedRun(local, "mirrored", cells=[cells[0], other])
    for visit in ("", "@2"):
        run.visit("ar", None, 100.0, visit, provenance={"model_revision": "of tiny-gemma4"})
        run.visit("mtp", 1, 150.0, visit, provenance={"model_revision": "of diffuser"})
    built = run.built()
    assert {each["model"]: each["compared_as"] for each in built.results} == {
        "tiny-gemma4": "tiny-gemma4", "diffuser": "tiny-gemma4",
    }  # fmt: skip
    assert only(built.pairs, kind="speed")["compared_as"] == "tiny-gemma4"
    assert {each["compared_as"] for each in built.pairs} == {"tiny-gemma4"}


def test_the_page_says_whose_ar_a_speedup_is_over() -> None:
    view = viewed([AR, DIFFUSION], [speed_pair(DIFFUSION, compared_as="m"), placebo(AR)])
    text = text_of(view)
    assert text.startswith("Run diffusion: 3.00 × AR of m at short c=1") and "240 tokens/s, 3.00 × AR of m (95" in text  # noqa: RUF001
    assert "beside AR of m</small>" in speed_section(view)


def test_the_other_models_ar_stays_while_a_speedup_rests_on_it() -> None:
    again = AR | {"run_id": "r2", "tok_s": 81.0, "measured_at": "2026-11-23T10:00:00+00:00"}
    view = viewed([AR, DIFFUSION, again], [speed_pair(DIFFUSION, compared_as="m")])
    assert sorted(each["tok_s"] for each in view.rates) == [80.0, 81.0, 240.0]


def test_the_other_models_ar_is_its_control_of_parity_and_of_every_evaluation() -> None:
    parity = {"step": "parity", "condition": None, "mode": None, "parity_n": 12, "parity_equal": 12}
    control, ours = row("ar", **parity), row("diffusion", **parity, **OTHER)
    scored, unscored = row("ar", **SCORED, score=0.7, n=198), row("diffusion", **SCORED, score=0.6, n=198, **OTHER)
    view = seen(AR, DIFFUSION, control, ours, scored, unscored)
    assert control_of(view, ours) == control
    [doubt] = doubts(view, DIFFUSION)
    assert doubt.why == "not the same questions, or read otherwise"


def test_that_there_is_no_trusted_ar_row_is_not_said_where_the_other_models_is_one() -> None:
    rejected = DIFFUSION | {"speedup": None, "verdict": "rejected", "reasons": ["short_output"]}
    text = text_of(seen(AR, rejected))
    assert text.startswith("No speedup can be stated. AR ran at 80.0 tokens/s.") and "no trusted AR row" not in text
