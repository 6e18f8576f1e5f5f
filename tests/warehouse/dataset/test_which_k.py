"""Which K: the smallest within noise of the fastest, from complete and trusted data only, and theory beside it."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from configs.schema import PlannedCell
from configs.steps.throughput import Condition
from tests.warehouse.report.pages import AR as AR_ROW
from tests.warehouse.report.pages import MTP as MTP_ROW
from tests.warehouse.report.pages import page_of, seen
from tests.warehouse.runs import SHORT, STEADY, VisitedRun
from tests.warehouse.synthetic import StepWriter, celled, demo_plan, engine_counts, only, streamed, window
from warehouse.dataset.curves import Point, Points, shapes_of
from warehouse.dataset.k_curves import steps_of
from warehouse.dataset.statistics.speculation import expected_tokens
from warehouse.dataset.statistics.starts import Components
from warehouse.dataset.tables import K_CURVES
from warehouse.ledger.store import Store
from warehouse.ledger.tables import Row
from warehouse.ledger.timed_tables import REQUESTS, WINDOWS
from warehouse.report.which_k import which_k_section

AR = ("ar", None)
K1, K2, K4 = ("mtp", 1), ("mtp", 2), ("mtp", 4)

POSITIONS: dict[int | None, tuple[float, ...]] = {1: (0.8,), 2: (0.8, 0.6), 4: (0.8, 0.6, 0.45, 0.35)}

LONG = SHORT.model_copy(update={"output_tokens": 20_000})
"""So long that counts in whole tokens have the shares that were planted."""

NEAR = {AR: 100.0, K1: 130.0, K2: 150.0, K4: 151.5}  # the fastest is within noise of a smaller one
Cell = tuple[str, int | None]


def only_mtp(*steps: str) -> list[PlannedCell]:
    """The demo's AR and MTP cells in 16 bits, with throughput and these steps."""
    return [
        each.model_copy(update={"steps": tuple(one for one in each.steps if one.step in ("throughput", *steps))})
        for each in demo_plan().cells
        if each.cell.precision.name == "bf16" and each.cell.technique.name in ("ar", "mtp")
    ]


def mirrored(store: Store, cells: Sequence[PlannedCell] = ()) -> VisitedRun:
    return VisitedRun(store, "mirrored", cells=cells or only_mtp())


def counts(k: int | None) -> Row:
    shares = POSITIONS.get(k, ())
    return engine_counts(shares, round(LONG.output_tokens / expected_tokens(shares)))


def there_and_back(
    run: VisitedRun, rates: Mapping[Cell, float], apart: Sequence[float] = (1.004, 0.996),
    condition: Condition = LONG, counted: Callable[[int | None], Row] = counts,
) -> None:  # fmt: skip
    """All cells forwards and then back; the second start of each is a little off the first one, in turns."""
    for at, ((technique, k), tok_s) in enumerate(rates.items()):
        run.visit(technique, k, tok_s * apart[at % 2], condition=condition, **counted(k))
    for at, ((technique, k), tok_s) in reversed([*enumerate(rates.items())]):
        run.visit(technique, k, tok_s / apart[at % 2], "@2", condition=condition, **counted(k))


@pytest.fixture
def run(local: Store) -> VisitedRun:
    return mirrored(local)


def recommended(run: VisitedRun) -> Row:
    return only(run.built().recommendations)


def refusal(run: VisitedRun) -> str:
    row = recommended(run)
    assert row["k"] is None and row["wording"] == f"no recommendation: {row['refusal']}"
    return str(row["refusal"])


def without(missing: Cell) -> dict[Cell, float]:
    return {cell: rate for cell, rate in NEAR.items() if cell != missing}


def test_the_smallest_k_within_noise_of_the_fastest_is_recommended(run: VisitedRun) -> None:
    there_and_back(run, NEAR)
    row = recommended(run)
    assert (row["k"], row["fastest_k"], row["k_candidates"]) == (2, 4, [0, 1, 2, 4])
    assert row["of_best"] == pytest.approx(150 / 151.5, rel=0.01) and row["of_best_lo"] < 1 <= row["of_best_hi"]
    assert row["wording"].startswith("K=2: within noise of K=4, the fastest: 0.99 x [0.9")
    assert "; 1.50 x AR [1.4" in row["wording"] and row["refusal"] is None
    assert (row["model"], row["technique"], row["condition"]) == ("tiny-gemma4", "mtp", "short c=1")
    out = only(run.built().k_curves, k=1)
    assert out["of_best_hi"] < 1, "noise doesn't hide what K=1 loses"


@pytest.mark.parametrize(
    ("rates", "k", "fastest_k", "said"),
    [
        (NEAR | {K4: 175.0}, 4, 4, "K=4: the fastest, and no smaller K is within noise of it; 1.75 x AR"),
        ({AR: 100.0, K1: 100.4, K2: 97.0, K4: 80.0}, 0, 1, "AR: within noise of K=1"),
    ],
    ids=["a larger K is truly faster", "no K gains anything"],
)
def test_what_is_recommended_is_the_smallest_that_loses_nothing(
    run: VisitedRun, rates: dict[Cell, float], k: int, fastest_k: int, said: str
) -> None:
    there_and_back(run, rates)
    row = recommended(run)
    assert (row["k"], row["fastest_k"]) == (k, fastest_k) and row["wording"].startswith(said)
    assert (row["of_best"] == 1.0) is (k == fastest_k)


@pytest.mark.parametrize("missing", [AR, K1, K4])
def test_incomplete_data_is_refused_and_what_is_missing_is_named(run: VisitedRun, missing: Cell) -> None:
    there_and_back(run, without(missing))
    assert refusal(run) == f"incomplete: {'AR' if missing == AR else f'K={missing[1]}'} was not measured"


def test_a_start_that_was_planned_and_not_made_is_missing(run: VisitedRun) -> None:
    run.visit("mtp", 4, 151.5, condition=LONG, **counts(4))
    there_and_back(run, without(K4))
    assert refusal(run) == "incomplete: K=4 has 1 of 2 engine starts"


def test_so_is_one_of_the_ar_that_a_cell_brings_along(local: Store) -> None:
    run = VisitedRun(local, cells=only_mtp())
    for technique, k in (K1, K2):
        run.bracket(technique, k, 100.2, 150.0, 99.8, condition=LONG, **counts(k))
    run.visit("mtp", 4, 100.2, "@control-1", condition=LONG)
    run.visit("mtp", 4, 151.5, condition=LONG, **counts(4))
    assert refusal(run) == "incomplete: K=4's AR has 1 of 2 engine starts"


def test_a_row_that_is_not_ok_decides_nothing(run: VisitedRun) -> None:
    there_and_back(run, without(K4))
    for visit in ("", "@2"):
        found = ("suspect", ["unsteady"], ["repeats differ"])
        run.visit("mtp", 4, 300.0, visit, verdict=found, condition=LONG, **counts(4))
    assert refusal(run) == "incomplete: K=4 is suspect (unsteady)"


def test_starts_that_were_not_repeated_recommend_nothing(local: Store) -> None:
    run = VisitedRun(local, "single", cells=only_mtp())
    for (technique, k), tok_s in NEAR.items():
        run.visit(technique, k, tok_s, condition=LONG, **counts(k))
    assert refusal(run).startswith("every K within one start")


def test_noise_that_could_hide_a_tenth_is_refused(run: VisitedRun) -> None:
    there_and_back(run, NEAR, apart=(1.06, 0.94))
    assert refusal(run).startswith("too noisy: ")


def test_a_k_that_fails_parity_is_never_recommended_however_fast_it_is(local: Store) -> None:
    run = mirrored(local, only_mtp("parity"))
    there_and_back(run, NEAR | {K4: 195.0})
    for technique, k in NEAR:
        write_parity(run, technique, k, breaks=(technique, k) == K4)
    row = recommended(run)
    assert (row["k"], row["fastest_k"], row["excluded"]) == (2, 2, ["K=4: parity_failed"])


def test_outputs_that_were_to_be_compared_and_were_not_recommend_nothing(local: Store) -> None:
    run = mirrored(local, only_mtp("parity"))
    there_and_back(run, NEAR | {K4: 195.0})
    for technique, k in (AR, K1, K2):
        write_parity(run, technique, k, breaks=False)
    assert refusal(run) == "incomplete: K=4's outputs were not compared"
    write_parity(run, *K4, breaks=False)
    assert recommended(run)["k"] == 4


def write_parity(run: VisitedRun, technique: str, k: int | None, *, breaks: bool) -> None:
    found = {f"p-{index:02d}": [-1 if breaks else index, *range(40)] for index in range(12)}
    run.outputs(technique, k, *[found] * (2 if technique == "ar" else 1))


def test_what_was_not_really_run_is_never_recommended(local: Store) -> None:
    model = only_mtp()[0].cell.model.model_copy(update={"weights": "dummy"})
    run = mirrored(local, [celled(each, model=model) for each in only_mtp()])
    there_and_back(run, NEAR)
    assert recommended(run)["made_up"] == "weights=dummy"
    assert refusal(run) == "not really run: weights=dummy"


def test_cells_on_machines_of_their_own_are_held_against_one_another_by_what_they_gain(local: Store) -> None:
    run = VisitedRun(local, cells=only_mtp())
    # the third machine is a quarter faster, its AR too: K=4 gains least
    for (technique, k), ar, tok_s, machine in (
        (K1, 100.0, 130.0, "node-a"), (K2, 101.0, 151.5, "node-b"), (K4, 125.0, 160.0, "node-c"),
    ):  # fmt: skip
        run.bracket(technique, k, ar * 1.002, tok_s, ar / 1.002, machine=machine, condition=LONG, **counts(k))
    row = recommended(run)
    assert (row["k"], row["fastest_k"]) == (2, 2), row["wording"]


def test_a_single_k_is_no_curve(local: Store) -> None:
    run = mirrored(local, [each for each in only_mtp() if each.cell.k in (None, 4)])
    there_and_back(run, {AR: 100.0, K4: 150.0})
    assert (run.built().recommendations, run.built().k_curves) == ([], [])


def test_the_cost_of_a_drafted_token_is_estimated_and_theory_follows_from_acceptance(run: VisitedRun) -> None:
    rates = {AR: 100.0} | {("mtp", k): 1000 * expected_tokens(POSITIONS[k]) / (10 + 0.5 * k) for k in (1, 2, 4)}
    there_and_back(run, rates, apart=(1.001, 0.999))
    built = run.built()
    row = only(built.recommendations)
    assert row["target_step_ms"] == pytest.approx(10, rel=0.01)
    assert row["draft_token_ms"] == pytest.approx(0.5, rel=0.05)
    assert row["draft_cost_lo"] < row["draft_cost"] == pytest.approx(0.05, rel=0.05) and row["points"] == 4
    for k in (1, 2, 4):
        point = only(built.k_curves, k=k)
        tokens = expected_tokens(POSITIONS[k])
        assert (point["tokens_expected"], point["tokens_per_step"]) == pytest.approx((tokens, tokens), rel=1e-3)
        assert point["step_ms"] == pytest.approx(10 + 0.5 * k, rel=0.01)
        assert point["speedup_expected"] == pytest.approx(tokens / (1 + 0.05 * k), rel=0.01)
        assert abs(point["residual"]) < 0.01 and 0 < point["theory_share"] < 1
        assert 1 < point["tokens_geometric"] <= k + 1
    assert only(built.k_curves, k=0)["step_ms"] == pytest.approx(10, rel=0.01)


def test_prefill_has_a_rate_and_no_curve_over_k() -> None:
    shapes = [("depth", "pp2048 @ d4096", "prefill"), ("depth", "tg128 @ d4096", "decode")]
    rows = [dict(zip(("step", "condition", "mode"), shape, strict=True)) | {"tok_s": 800.0} for shape in shapes]
    assert shapes_of(rows) == shapes[1:]


def at_every_second_step(k: int | None) -> Row:
    shares = POSITIONS.get(k, ())
    return engine_counts(shares, round(LONG.output_tokens / (2 + sum(shares))))


def half_as_many(k: int | None) -> Row:
    found = counts(k)
    return found | {"engine_draft_tokens": found["engine_draft_tokens"] // 2} if found else {}


@pytest.mark.parametrize("counted", [at_every_second_step, half_as_many])
def test_no_theory_of_fewer_drafts_than_k(local: Store, run: VisitedRun, counted: Callable[[int | None], Row]) -> None:
    there_and_back(run, NEAR, counted=counted)
    built = run.built()
    for k in (1, 2, 4):
        point = only(built.k_curves, k=k)
        assert point["step_ms"] and point["tokens_per_step"] > 1, "measured, whatever was drafted"
        for name in ("tokens_expected", "acceptance_rate", "tokens_geometric", "step_ms_fitted", "tok_s_expected",
                     "speedup_expected", "residual", "theory_share"):  # fmt: skip
            assert point.get(name) is None, name
    assert only(built.recommendations).get("draft_cost") is None
    assert page_of(local).text.count("not K drafts at every step") == 3


@pytest.mark.parametrize("behind", [0, 1])
def test_a_prefill_drafts_nothing_and_is_not_held_against_a_technique(run: VisitedRun, behind: int) -> None:
    """Nor is what the last draft of an answer accepted behind its end."""
    # of 100 tokens: 1 of the prefill, 1 of each step, and what was accepted
    accepted = {1: [44], 2: [33, 25], 4: [24, 18, 15, 12]}
    told = {
        k: {
            "engine_drafts": 99 - sum(each), "engine_draft_tokens": k * (99 - sum(each)),
            "engine_accepted_tokens": sum(each) + behind * k, "engine_accepted_by_position": each,
        }
        for k, each in accepted.items()
    }  # fmt: skip
    there_and_back(run, NEAR, condition=SHORT, counted=lambda k: told.get(k or 0, {}))
    assert all(only(run.built().k_curves, k=k)["tokens_expected"] for k in (1, 2, 4))
    assert only(run.built().recommendations)["points"] == 4


@pytest.mark.parametrize(
    ("step", "concurrency", "is_known"),
    [("prompts", 1, True), ("prompts", 4, False), ("load", 4, True), ("load", None, False)],
)
def test_a_step_is_known_where_the_requests_in_flight_are(step: str, concurrency: int | None, is_known: bool) -> None:
    starts: Any = SimpleNamespace(is_ok=True, tok_s=100.0, served_cell_key="ar")
    row = {"cell_key": "mtp", "verdict": "ok", "tok_s": 150.0, "tokens_per_step": 2.0, "concurrency": concurrency}
    curve: Any = None
    point = Point(row | {"mode": "natural"}, starts, starts, Components(0.0, 0.0, 0.0))
    assert bool(steps_of(Points(curve, (step, "c", "natural"), {2: point}, None), [], [])) is is_known


def with_prefill(run: VisitedRun, unstreamed: Cell | None = None) -> None:
    """There and back, at a step of 10 ms and 0.5 for each drafted token, behind a prefill of 20 s."""
    n, prefill_s = LONG.output_tokens, 20.0
    for (technique, k), visit in [*((cell, "") for cell in NEAR), *((cell, "@2") for cell in reversed(NEAR))]:
        tokens = expected_tokens(POSITIONS.get(k, ()))
        tok_s = n / (prefill_s + (n / tokens - 1) * (0.010 + 0.0005 * (k or 0)))
        step = StepWriter(run.ledger, run.key(technique, k), f"throughput{visit}").provenance(machine="node-1 card-1")
        step.write(WINDOWS, [window(LONG, at, tok_s * rate, **counts(k)) for at, rate in enumerate(STEADY)])
        if (technique, k) != unstreamed:
            step.write(REQUESTS, [streamed(LONG, index, 1000 * prefill_s, 10.0) for index in range(3)])
        step.judge((LONG.name, "fixed", "ok", [], []), (LONG.name, "stream", "ok", [], [])).commit()


def test_a_prefill_that_is_known_is_no_part_of_a_step(run: VisitedRun) -> None:
    with_prefill(run)
    row = only(run.built().recommendations)
    assert row["target_step_ms"] == pytest.approx(10, rel=0.01)
    assert row["draft_token_ms"] == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("unstreamed", [AR, K4])
def test_a_prefill_that_one_of_them_lacks_is_taken_out_of_none(run: VisitedRun, unstreamed: Cell) -> None:
    with_prefill(run, unstreamed)
    for k in (0, 1, 2, 4):
        point = only(run.built().k_curves, k=k)
        assert point["step_ms"] == pytest.approx(1000 * (point.get("tokens_per_step") or 1.0) / point["tok_s"])


def test_a_recommendation_goes_with_the_first_of_its_rows_that_was_measured_anew(local: Store) -> None:
    there_and_back(mirrored(local), NEAR)
    assert "K=2: within noise of K=4" in page_of(local).text
    anew: Any = VisitedRun(local, "mirrored", "later", [each for each in only_mtp() if each.cell.k in (None, 4)])
    anew.ledger.clock.now += 86_400
    there_and_back(anew, {AR: 100.0, K4: 120.0})
    assert "within noise of K=4" not in page_of(local).text


def test_the_page_shows_the_curve_the_recommendation_and_theory(local: Store, run: VisitedRun) -> None:
    there_and_back(run, NEAR)
    page = page_of(local)
    assert ("section", "which-k") in [(tag, attributes.get("id")) for tag, attributes in page.elements]
    assert "Speed over K, short c=1" in page.text and "K=2: within noise of K=4, the fastest" in page.text
    assert any(attributes.get("class") == "ring" for tag, attributes in page.elements if tag == "circle")
    assert any(attributes.get("class") == "line theory" for _, attributes in page.elements)


@pytest.mark.parametrize(
    "name",
    ["run_id", "model", "precision", "technique", "draft", "made_up", "engine", "gpu", "step", "condition", "mode"],
)
def test_points_that_differ_in_more_than_k_are_of_two_curves(name: str) -> None:
    named = dict.fromkeys(("run_id", "model", "precision", "technique", "engine", "gpu", "step", "condition"), "same")
    known = named | {"mode": "fixed", "tok_s": 100.0, "verdict": "ok", "reasons": []}
    points = [dict.fromkeys(K_CURVES.column_names()) | known | {"k": k} for k in (0, 4)]
    assert "Speed over K, same" in (which_k_section(seen(k_curves=points)) or "")
    assert which_k_section(seen(k_curves=[points[0], points[1] | {name: "another"}])) is None


def test_points_of_several_machines_are_drawn_as_what_each_gains_over_ar_on_its_own() -> None:
    """A line through rates of two cards is the cards' as much as the technique's."""
    named = {name: AR_ROW.get(name) for name in K_CURVES.column_names()} | {"technique": "mtp", "cell_key": "mtp"}
    points = [
        named | {"k": k, "cell_key": f"k{k}", "tok_s": 100.0 * k, "tok_s_lo": 90.0, "tok_s_hi": 99.0, "speedup": gain}
        for k, gain in ((2, 1.5), (4, 1.25), (8, None))
    ]
    rows = [MTP_ROW | {"cell_key": each["cell_key"], "k": each["k"], "machine": "host/card 1"} for each in points]
    rates = which_k_section(seen(*rows, k_curves=points)) or ""
    assert "Speed over K, short c=1" in rates and "tokens per second" in rates
    for elsewhere, places in (({"machine": "host/card 2"}, "2 machines"), ({"run_id": "r2"}, "2 runs")):
        apart = [*rows[::2], rows[1] | elsewhere | {"speedup_lo": None, "speedup_hi": None}]
        moved = [each | {"measured_in": elsewhere.get("run_id") if each["k"] == 4 else None} for each in points]
        gains = which_k_section(seen(*apart, k_curves=moved)) or ""
        assert "Speedup over K, short c=1" in gains
        assert f"Of {places}: each point over AR on its own machine." in gains
        assert "mtp K=2 1.50; mtp K=4 1.25</desc>" in gains and "tokens per second" not in gains
        assert gains.count('class="whisker"') == 1, "the interval of the speedup that has one"
    assert "<svg" not in (which_k_section(seen(*apart, k_curves=[each | {"speedup": None} for each in moved])) or "")
