"""The page: derived from the data, complete, offline, deaf to whatever a model wrote, and readable when it is long."""

import re
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.warehouse.rented import NO_PRICE, close, rent, rent_a_bad_night
from tests.warehouse.report.pages import (
    AR,
    MTP,
    Page,
    frame,
    page_of,
    page_with_starts,
    placebo,
    row,
    seen,
    speed_pair,
    tables_of,
    visit,
)
from tests.warehouse.runs import GPQA, WRONG_READING, Graded, answers, score
from tests.warehouse.synthetic import DEMO, HOSTILE, Behaviour, DemoRun, close_attempt, write_demo_run
from warehouse.dataset.snapshot import current, publish, read_current
from warehouse.dataset.tables import ATTEMPTS, K_CURVES, PRODUCT_TABLES, RESULTS_CONSOLIDATED
from warehouse.ledger.store import Store, StoreError
from warehouse.report.answer import answers as verdicts
from warehouse.report.answer import caveats
from warehouse.report.display.drawing import Scale, apart
from warehouse.report.display.figures import Row
from warehouse.report.display.markup import Markup, tag
from warehouse.report.display.tables import MOST_ROWS, fair_share
from warehouse.report.display.view import View, make_view
from warehouse.report.page import render_report, write_report
from warehouse.report.placebo_section import placebo_section
from warehouse.report.trust_sections import attempts_section, unmeasured_section


def test_the_demo_page_answers_first_and_hides_nothing(local: Store) -> None:
    write_demo_run(local)
    page = page_with_starts(local)
    assert "Run mtp K=4: 1.91 × AR at short c=1, if its accuracy holds." in page.text  # noqa: RUF001
    told = "on the same 48 questions of eval-tiny (+0.000): cannot tell: needs about 87 items as one of 7 comparisons"
    assert told in page.text
    assert "lossless, as far" not in page.text and "yes: lossless" not in page.text
    assert "they are small" in page.text
    for reason in ("looping_text", "stream_burst", "the node was preempted"):
        assert reason in page.text
    assert "draft_model K=4 (9 of 12 equal, first difference at token 212)" in page.text
    assert "What other readers would have published" in page.text and "0.208" in page.text
    assert page.count("svg") >= 4
    assert {"ar", "speed", "acceptance", "accuracy", "parity", "latency", "flagged", "attempts", "provenance"} <= {
        facts.get("id") for _, facts in page.elements
    }


@pytest.mark.slow(19)
def test_what_rented_machines_cost_is_told_by_phase(local: Store) -> None:
    plan = write_demo_run(local)
    assert "What it cost" not in page_of(local).text, "all ran here, for free"
    ledger = DemoRun(local, "night").ledger
    rent_a_bad_night(ledger, plan.cells[0].cell.cell_key)
    rent(ledger, plan.cells[1].cell.cell_key, 0, 100, 1800, "preempted", attempt=1, interrupted=True)
    page = page_of(local)
    endings = "2 preempted, 1 done, 1 setup failed; 1 not charged"
    assert f"Run night: $2.50 for 1.11 hours of 4 rented machines ({endings}); 48.0% of the bill" in page.text
    for said in ("aws/us-east-1b spot", "aws/us-east-1a on-demand", "no_capacity (2 times)", "preempted: reclaimed"):
        assert said in page.text
    assert ("a", {"href": "#cost"}) in page.elements


def test_machines_without_a_price_are_told_in_hours(local: Store) -> None:
    run = DemoRun(local, "night")
    key = run.key("ar")
    rent(run.ledger, key, 0, 100, 3600, offer=NO_PRICE, attempt=1)
    close(run.ledger, key, 1, 200, 3500, price_usd_h=None, measure_s=1800.0)
    page = page_of(local)
    assert "Run night: 1.00 hours of 1 rented machine (1 done); 50.0% of the hours" in page.text
    assert "0.50 h" in page.text


@pytest.mark.slow(10)
def test_the_page_is_offline_small_and_accessible(local: Store) -> None:
    write_demo_run(local)
    page = page_of(local)
    text = Path(local.uri("report.html")).read_text(encoding="utf-8")
    assert len(text.encode()) < 2_000_000
    assert page.count("script") == page.count("link") == page.count("img") == page.count("iframe") == 0
    assert not re.search(r"url\(|@import|src=", text)
    addresses = set(re.findall(r"https?://[^\"' <]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert page.count("title") == 1 + page.count("svg") and page.count("desc") == page.count("svg")
    assert all(facts.get("role") == "img" for tag, facts in page.elements if tag == "svg")
    assert page.count("html") == 1 and ("html", {"lang": "en"}) in page.elements
    assert "prefers-color-scheme: dark" in text
    assert "Published beside measured" not in page.text, "nobody published such cells"


@pytest.mark.slow(6)
def test_hostile_text_stays_text_and_an_element_escapes_whatever_is_not_markup(local: Store) -> None:
    write_demo_run(local, text=HOSTILE)
    page = page_of(local)
    text = Path(local.uri("report.html")).read_text(encoding="utf-8")
    assert page.count("script") == page.count("img") == 0
    assert not any(name.startswith("on") for _, facts in page.elements for name in facts)
    assert HOSTILE[:20] in " ".join(page.words)
    assert "<script" not in text
    assert tag("td", HOSTILE, title='"><script>').count("<") == 2
    assert tag("p", tag("b", "a<b"), None, "c&d") == "<p><b>a&lt;b</b>c&amp;d</p>"
    assert isinstance(tag("p"), Markup)


def test_a_store_without_results_has_a_page_that_says_so(local: Store) -> None:
    with pytest.raises(StoreError, match="publish before"):
        write_report(local)
    assert "Nothing to recommend yet." in page_of(local).text
    run = DemoRun(local, "failed")
    close_attempt(run.ledger, run.key("ar"), 1, "failed", "the engine died: out of memory", "log")
    assert "the engine died: out of memory" in page_of(local).text


@pytest.mark.slow(6)
def test_ar_wins_where_nothing_is_faster(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, behaviour in DEMO.items():
        if key[1] != "ar":
            monkeypatch.setitem(DEMO, key, behaviour._replace(tok_s=300))
    write_demo_run(local)
    assert "Stay with AR" in page_with_starts(local).text


@pytest.mark.slow(8)
def test_a_fast_technique_that_loses_accuracy_is_not_recommended(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEMO, ("bf16", "mtp", 4), Behaviour(982, (0.9, 0.8, 0.7, 0.6), right=20))
    write_demo_run(local)
    text = page_with_starts(local).text
    assert all(said in text for said in ("Run mtp K=2", "hence not recommended: mtp K=4", "no: worse"))


@pytest.mark.slow(17)
def test_only_the_newest_run_of_a_cell_is_shown_and_the_rest_is_counted(local: Store) -> None:
    write_demo_run(local, "demo-1")
    write_demo_run(local, "demo-2")
    text = page_of(local).text
    assert "rows of earlier runs of the same cells" in text
    assert "2 runs · snapshot 1" in text


def test_a_report_is_kept_for_every_snapshot(store: Store) -> None:
    manifest = publish(store)
    assert write_report(store).endswith("report.html")
    assert store.get(f"reports/{manifest.version}.html") == store.get("report.html")


def test_labels_are_kept_apart_and_ticks_are_round() -> None:
    places = apart([10.0, 11.0, 50.0, 10.5], 12, 0, 100)
    ordered = sorted(places)
    assert all(b - a >= 12 for a, b in pairwise(ordered))
    assert places.index(min(places)) == 0
    assert apart([98.0, 99.0], 10, 0, 100) == [90.0, 100.0]
    assert Scale(0, 2269, 0, 1).ticks() == [0, 500, 1000, 1500, 2000]
    assert Scale(0, 1, 0, 1).ticks() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert Scale(0, 10, 100, 200).at(20) == 200


CELLS, EVALUATIONS = 90, 6


@pytest.fixture
def tables(local: Store) -> dict[str, pl.DataFrame]:
    """One AR cell and one beside it, as often as to make 90 cells of six evaluations; the last cell is worse."""
    run = Graded(local, GPQA)
    for technique, k, right in (("ar", None, 95), ("mtp", 4, 94)):
        reported = score("exact_match,none", 0.75, 20)
        run.answered(technique, k, answers(100, range(right), **WRONG_READING), reported)
    publish(local)
    small = {name: read_current(local, name) for name in PRODUCT_TABLES}
    rows, pairs = [], []
    for number, place in product(range(CELLS), range(EVALUATIONS)):
        named = {"cell_key": pl.lit(f"{number:016x}"), "step": pl.lit(f"eval-{place}")}
        other = small["results_consolidated"].filter(technique="mtp" if number else "ar")
        rows.append(other.with_columns(**named))
        if number:
            conclusion = pl.lit("worse" if number == CELLS - 1 else "non-inferior")
            pairs.append(small["pairs"].with_columns(**named, conclusion=conclusion))
    return small | {"results_consolidated": pl.concat(rows), "pairs": pl.concat(pairs)}


def test_long_tables_are_cut_and_say_where_the_rest_is(local: Store, tables: dict[str, pl.DataFrame]) -> None:
    manifest = current(local)
    assert manifest is not None
    page = render_report(tables, manifest)
    section = page[page.index('id="accuracy"') :].partition("</section>")[0]
    assert section.count("<tr>") <= 3 * (MOST_ROWS + 1)
    assert section.count("140 rows more in results_consolidated.parquet.") == 2, "scores, and other readers"
    assert section.count("134 rows more in pairs.parquet.") == 1
    assert "50 scores more in results_consolidated.parquet." in section, "in each plot"
    tables_of_page = [part[: part.index("</table>")] for part in section.split("<table>")[1:]]
    assert len(tables_of_page) == 3
    for each in tables_of_page:
        assert [place for place in range(EVALUATIONS) if f"eval-{place}<" not in each] == [], "no evaluation is hidden"
    assert sum(each.count("no: worse") for each in tables_of_page) == EVALUATIONS, "no loss is hidden"


def test_every_group_has_its_share_of_a_table_that_is_cut() -> None:
    rows = [{"step": step, "n": n} for step, many in (("a", 1000), ("b", 10)) for n in range(many)]
    shown = fair_share(rows, lambda row: row["step"])
    assert len(shown) == MOST_ROWS and [row for row in shown if row["step"] == "b"] == rows[1000:]
    assert shown == sorted(shown, key=rows.index), "in their order"
    assert fair_share(rows[:MOST_ROWS], lambda row: row["step"]) == rows[:MOST_ROWS]


def test_a_cells_rows_and_pairs_are_those_that_a_search_through_everything_finds(tables: dict[str, Any]) -> None:
    view = make_view(tables)
    for found in view.rows[::97]:
        cell, step = ({name: found[name] for name in names} for names in (("run_id", "cell_key"), ("step",)))
        for wanted in (cell, cell | step, step, {"technique": found["technique"]}):
            assert view.of(**wanted) == [each for each in view.rows if wanted.items() <= each.items()]
        assert view.accuracy_pairs(found) == [each for each in view.pairs if cell.items() <= each.items()]
    assert view.of(run_id="none", cell_key="none") == []


def tried(technique: str, attempt: int = 1, outcome: str = "failed", **columns: Any) -> Row:
    known = {
        "run_id": "r1", "cell_key": technique, "technique": technique, "model": "m", "precision": "bf16", "gpu": "h100",
        "engine": "e", "weights": "real", "attempt": attempt, "outcome": outcome, "unmeasured": ["smoke", "throughput"],
        "reason": f"the engine died: {technique}", "ended_at": f"2026-11-22T1{attempt}:00:00+00:00",
    }  # fmt: skip
    return dict.fromkeys(ATTEMPTS.column_names()) | known | columns


def told_of(view: View) -> str:
    return "" if (section := unmeasured_section(view)) is None else Page(section).text.partition(" tries ")[2]


def test_a_cell_that_never_started_is_told_with_its_last_reason_and_of_several_models_only_some() -> None:
    dflash = [tried("dflash", 2, reason="CUDA out of memory", k=15), tried("dflash", k=15)]
    view = View([AR], [], [*dflash, tried("ar", outcome="completed")], 0)
    assert told_of(view) == "dflash K=15 CUDA out of memory everything failed 2"
    assert caveats(view)[-1] == "Tried, and not measured or not whole: dflash K=15. See Not measured."
    view = View([AR, MTP], [], [tried("mtp", k=4, outcome="lost", unmeasured=["throughput@2", "parity"])], 0)
    assert told_of(view) == "mtp K=4 the engine died: mtp throughput@2, parity lost 1", "what is missing"
    attempts = [tried(f"mtp-{number}", model=f"m{number % 2}") for number in range(6)]
    assert caveats(View([AR], [], attempts, 0))[-1] == (
        "Tried, and not measured or not whole: m0 mtp-0, m0 mtp-2, m0 mtp-4, m1 mtp-1 and 2 others. See Not measured."
    )


@pytest.mark.parametrize(
    "attempts",
    [
        [tried("mtp"), tried("mtp", 2, "completed", unmeasured=[])],
        [tried("mtp", outcome="lost", unmeasured=[])],
        [tried("mtp"), tried("mtp", 2, "completed", run_id="r2", unmeasured=[])],
        [tried("mtp", outcome="completed", unmeasured=["throughput@2"])],
    ],
    ids=["measured since", "lost behind its work", "measured by another run", "half-way"],
)
def test_what_is_measured_is_not_told(attempts: list[Row]) -> None:
    view = View([AR, MTP], [], attempts, 0)
    assert unmeasured_section(view) is None and not caveats(view)


def test_a_night_that_measured_only_a_control_takes_nothing_off_the_page_and_is_told() -> None:
    later = {"run_id": "r2", "measured_at": "2026-11-23T10:00:00+00:00"}
    cut = row("mtp", k=4, condition=None, mode=None, verdict="suspect", reasons=["not_measured"], **later)
    curve = {name: MTP.get(name) for name in K_CURVES.column_names()} | {"measured_in": "r1"}
    lost = tried("mtp", k=4, run_id="r2", outcome="lost", unmeasured=["throughput"])
    pairs, curves = [speed_pair(MTP), placebo(AR)], {"k_curves": [curve], "recommendations": [curve]}
    tables = tables_of(results_consolidated=[AR, MTP, cut], pairs=pairs, attempts=[lost], **curves)
    view = make_view(tables)
    assert [each["tok_s"] for each in view.rates] == [80.0, 160.0] and view.older_rows == 0
    assert [answer.verdict[:9] for answer in verdicts(view)] == ["Run mtp K"]
    assert len(view.k_curves) == len(view.recommendations) == 1
    assert told_of(view) == "mtp K=4 r2 the engine died: mtp throughput lost 1"
    assert [each["run_id"] for each in view.flagged()] == ["r2"], "its control's seconds stay among the flagged rows"
    whole = frame(RESULTS_CONSOLIDATED, AR, MTP, MTP | later | {"tok_s": 150.0})
    assert [each["tok_s"] for each in make_view(tables | {"results_consolidated": whole}).rates] == [80.0, 150.0]


RENTED = {"rented_s": 1200.0, "cloud": "aws", "spot": True, "price_source": "none"}


def spreads(*rows: Row) -> list[list[str]]:
    """Start sd, repeat sd and repeats per start, by row of the table of noise."""
    visits = [visit(1, cell_key=each["cell_key"], repeats=2 + place) for place, each in enumerate(rows)]
    told_of = placebo_section(seen(*rows, visits=visits)) or ""
    cells = [re.findall(r'<td class="n">([^<]*)</td>', each) for each in told_of.split("<tr>")[2:]]
    return [[start, repeat, repeats] for start, repeat, _, repeats, _ in cells]


EARLY, LATE = AR | {"start_sd": 0.01, "repeat_sd": 0.02}, MTP | {"start_sd": 0.04, "repeat_sd": 0.06}


def test_parts_of_a_run_with_spreads_of_their_own_are_shown_apart_and_say_whose_they_are() -> None:
    """Else three rows of one condition and one run could not be told apart."""
    ngram = row("ngram", 100.0, start_sd=0.01, repeat_sd=0.02)
    assert spreads(EARLY, LATE, ngram) == [["1.0%", "2.0%", "3.0"], ["4.0%", "6.0%", "3.0"]]
    apart = placebo_section(seen(EARLY, LATE)) or ""
    assert "short c=1<small>m AR</small>" in apart and "short c=1<small>m mtp K=4</small>" in apart
    together = placebo_section(seen(EARLY, LATE | {"start_sd": 0.01})) or ""
    assert "start sd" in together and "m AR" not in together


@pytest.mark.parametrize("fitted", [0.01, None])
def test_rows_of_one_spread_or_of_none_are_shown_together(fitted: float | None) -> None:
    rows = [AR | {"start_sd": 0.01, "repeat_sd": 0.03}, MTP | {"start_sd": fitted, "repeat_sd": 0.03}]
    assert spreads(*rows) == [["1.0%", "3.0%", "2.5"]]


def paid(technique: str, attempt: int, cost_usd: float | None, **columns: Any) -> Row:
    return tried(technique, attempt, "completed", wall_s=600.0, cost_usd=cost_usd, **columns)


@pytest.mark.parametrize(
    ("attempts", "said"),
    [
        ([paid("ar", 1, None)], "1 attempt, 10.0 minutes of machines. Of 1 cell"),
        ([paid("ar", 1, 1.5), paid("ar", 2, 0.5)], "2 attempts, 20.0 minutes of machines, $2.00. Of 1 cell"),
        (
            [paid("ar", 1, 1.5), paid("ar", 2, 0.5), paid("mtp", 1, None, **RENTED)],
            "3 attempts, 40.0 minutes of machines, $2.00 for the 2 with a price.<",
        ),
    ],
    ids=["none", "all", "some"],
)
def test_the_sum_of_the_prices_is_of_the_tries_that_have_one(attempts: list[Row], said: str) -> None:
    told_of = attempts_section(View([AR, MTP], [], attempts, 0))
    assert said in told_of
    assert ("no attempt is on record" in told_of) is ("Of 1 cell" in said)
