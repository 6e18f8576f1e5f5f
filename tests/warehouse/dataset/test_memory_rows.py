"""Memory, energy and needles in the dataset and on the page: of all starts, against AR, absent where nobody tells."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from configs.steps.memory import CONDITION, MemoryStep
from configs.steps.needle import NeedleStep
from tests.warehouse.runs import AR, MTP, SHORT, MinuteByMinute, served, view_of
from tests.warehouse.synthetic import FINE, DemoRun, StepWriter, demo_plan, only, window
from warehouse.dataset.build import Consolidated
from warehouse.dataset.tables import RESULTS_CONSOLIDATED
from warehouse.ledger.steps import MEMORY_MODE, MEMORY_STARTS, NEEDLES
from warehouse.ledger.store import Store
from warehouse.ledger.timed_tables import WINDOWS
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View
from warehouse.report.steps.memory import NO_ENERGY, full_length, memory_section
from warehouse.report.steps.needle import needle_section

GIB = 1024**3

SPEC = MemoryStep.model_validate({"step": "memory", "prompts": "listing"})
DFLASH = 6  # place of a further cell in the demo's plan
KNOWN: Row = {
    "context_tokens": 32752, "output_tokens": 16, "prompt_tokens": 32750, "completion_tokens": 16, "wall_s": 3.0,
    "weights_bytes": 30 * GIB, "kv_cache_bytes": 40 * GIB, "kv_tokens": 180_000, "graph_bytes": GIB,
    "engine_memory_peak_bytes": 72 * GIB, "gpu_memory_peak_bytes": 74 * GIB, "host_peak_bytes": 6 * GIB,
}  # fmt: skip


class EnergisedRun(DemoRun):
    def __init__(self, store: Store, design: str = "mirrored", mtp_max_model_len: int | None = None) -> None:
        plan = demo_plan()
        ar = plan.cells[AR].cell
        update = {"visits": design, "steps": (*plan.cells[AR].steps, SPEC)}
        control = {"control": ar} if design == "bracketed" else {}
        cells = [each.model_copy(update=update | ({} if each.cell.technique.is_baseline else control))
                 for each in plan.cells]  # fmt: skip
        if mtp_max_model_len is not None:
            cells[MTP] = served(cells[MTP], mtp_max_model_len)
        super().__init__(store, "r1", MinuteByMinute(), cells=tuple(cells))

    def writer(self, place: int, step: str, machine: str = "node-1 card-1") -> StepWriter:
        return StepWriter(self.ledger, self.plan.cells[place].cell.cell_key, step).provenance(machine=machine)

    def start(self, place: int, visit: str = "", **said: Any) -> None:
        step = self.writer(place, f"memory{visit}").write(MEMORY_STARTS, [{**KNOWN, **said}])
        step.judge((CONDITION, MEMORY_MODE, *FINE)).commit()

    def speed(
        self, place: int, tok_s: float, watts: float | None, visit: str = "", *, machine: str = "node-1 card-1",
        verdict: Sequence[Any] = FINE, modes: Sequence[str] = ("fixed",), **told: Any,
    ) -> None:  # fmt: skip
        """One committed visit of a throughput step, three windows a mode, at so many watts; None: no card told any."""
        rows = [window(SHORT, number, tok_s, mode=mode) for mode in modes for number in range(3)]
        if watts is not None:
            rows = [row | {"energy_j": watts * row["wall_s"], "power_w": watts, "energy_from": "counter"} | told
                    for row in rows]  # fmt: skip
        step = self.writer(place, f"throughput{visit}", machine).write(WINDOWS, rows)
        step.judge(*((SHORT.name, mode, *verdict) for mode in modes)).commit(verdict[0], verdict[1])


@pytest.fixture
def run(local: Store) -> EnergisedRun:
    return EnergisedRun(local)


def page(made: Consolidated) -> str:
    return memory_section(view_of(made)) or ""


def test_a_row_has_what_a_cell_can_count_on_in_any_start(run: EnergisedRun) -> None:
    run.start(AR)
    run.start(AR, "@2", kv_tokens=179_000, kv_cache_bytes=39 * GIB, gpu_memory_peak_bytes=75 * GIB)
    row = only(run.built().results, step="memory")
    assert (row["kv_tokens"], row["kv_cache_bytes"], row["visits"]) == (179_000, 39 * GIB, 2)
    assert row["gpu_memory_peak_bytes"] == 75 * GIB, "and the most that it takes"
    assert row["kv_bytes_per_token"] == pytest.approx(40 * GIB / 180_000)
    assert (row["condition"], row["tok_s"] if "tok_s" in row else None) == ("full context", None)
    assert row["baseline_kv_tokens"] is None, "AR is held against nothing"
    assert row["gpu_s"] == pytest.approx(72), "both starts"


def test_a_draft_is_held_against_its_own_control(local: Store) -> None:
    run = EnergisedRun(local, "bracketed")
    run.start(MTP, "@control-1", kv_tokens=190_000)
    run.start(MTP, kv_tokens=171_000)
    run.start(MTP, "@control-2", kv_tokens=190_100)
    run.start(AR, kv_tokens=500_000)
    row = only(run.built().results, step="memory", technique="mtp")
    assert row["baseline_kv_tokens"] == 190_000 and row["visits"] == 1
    assert "\N{MINUS SIGN}19\N{NARROW NO-BREAK SPACE}000 (\N{MINUS SIGN}10.0%)" in page(run.built())


@pytest.mark.parametrize(("max_model_len", "baseline"), [(None, 180_000), (1024, None)])
def test_without_controls_it_is_the_runs_own_ar(local: Store, max_model_len: int | None, baseline: int | None) -> None:
    run = EnergisedRun(local, mtp_max_model_len=max_model_len)
    run.start(AR, kv_tokens=180_000)
    run.start(MTP, kv_tokens=170_000)
    row = only(run.built().results, step="memory", technique="mtp")
    assert row["baseline_kv_tokens"] == baseline
    assert ("AR was served with other arguments" in "".join(row["details"])) == (baseline is None)
    assert row["verdict"] == "ok"


def test_a_control_without_its_cell_is_a_row_without_figures(local: Store) -> None:
    run = EnergisedRun(local, "bracketed")
    run.start(MTP, "@control-1")
    row = only(run.built().results, step="memory")
    assert row["reasons"] == ["not_measured"] and row.get("kv_tokens") is None


def test_energy_is_joules_over_tokens_of_all_windows(run: EnergisedRun) -> None:
    run.speed(AR, 100, 400, throttle_reasons=["sw_power_cap"])
    run.speed(AR, 100, 500, "@2", throttle_reasons=[])
    run.speed(MTP, 250, 500)
    ar, mtp = (only(run.built().results, technique=name, condition="short c=1") for name in ("ar", "mtp"))
    assert ar["energy_j_per_token"] == pytest.approx(4.5) and ar["power_w"] == pytest.approx(450)
    assert ar["throttle_reasons"] == ["sw_power_cap"]
    assert mtp["energy_j_per_token"] == pytest.approx(2.0) and mtp.get("throttle_reasons") is None
    shown = page(run.built())
    assert "Energy per token, short c=1" in shown and "tok/s per W" in shown and "sw_power_cap" in shown
    assert "0.44" in shown, "of AR's"


WAITED = ("suspect", ["client_starved"], ["the client waited"])


@pytest.mark.parametrize(
    ("ar", "shown"), [({}, True), ({"machine": "node-2 card-7"}, False), ({"verdict": WAITED}, False)]
)
def test_energy_is_held_against_ok_ar_of_the_same_machine(run: EnergisedRun, ar: dict[str, Any], shown: bool) -> None:
    run.speed(AR, 100, 400, **ar)
    run.speed(MTP, 250, 500)
    assert ("J per token, \N{MULTIPLICATION SIGN} AR" in page(run.built())) == shown


def test_energy_is_held_against_the_cells_own_control(local: Store) -> None:
    run = EnergisedRun(local, "bracketed")
    for visit, watts in (("@control-1", 400), ("", 600), ("@control-2", 440)):
        run.speed(MTP, 250 if visit == "" else 100, watts, visit)
    made = run.built()
    row = only(made.results, condition="short c=1")
    assert row["energy_j_per_token"] == pytest.approx(2.4)
    assert row["baseline_energy_j_per_token"] == pytest.approx(4.2), "mean over its starts"
    assert [round(each["energy_j_per_token"], 6) for each in made.visits] == [4.0, 4.4, 2.4]
    assert [round(each["power_w"], 6) for each in made.visits] == [400, 440, 600]
    assert "0.57" in page(made)


def test_bars_of_one_plot_are_of_one_mode(run: EnergisedRun) -> None:
    for cell in (AR, MTP):
        run.speed(cell, 100, 400, modes=("fixed", "natural"))
    shown = page(run.built())
    assert shown.count("<svg") == 2 and "Energy per token, short c=1 (natural)" in shown
    assert "answers end by themselves" in shown, "and so says the table"


def test_windows_without_an_energy_leave_the_others_theirs(run: EnergisedRun) -> None:
    run.speed(AR, 100, None)
    run.speed(AR, 100, 300, "@2")
    row = only(run.built().results, condition="short c=1")
    assert row["energy_j_per_token"] == pytest.approx(3.0)


def test_without_a_card_there_is_no_energy_and_the_page_says_so_once(run: EnergisedRun) -> None:
    cards = ("weights_bytes", "graph_bytes", "engine_memory_peak_bytes", "gpu_memory_peak_bytes")
    run.start(AR, **dict.fromkeys(cards))
    run.speed(AR, 100, None)
    rows = run.built().results
    assert all(row.get("energy_j_per_token") is None and row.get("power_w") is None for row in rows)
    shown = page(run.built())
    assert shown.count(NO_ENERGY) == 1 and "<svg" not in shown
    assert "peak of the host" in shown and "peak of a card" not in shown and "CUDA graphs, GiB" not in shown


def test_the_cache_is_told_in_requests_of_full_length_and_in_no_shorter_ones(run: EnergisedRun) -> None:
    row = {"kv_tokens": 180_000, "context_tokens": 32_752, "output_tokens": 16}
    assert full_length(row) == pytest.approx(5.49, abs=0.01) and full_length(row | {"kv_tokens": None}) is None
    run.start(AR)
    shown = page(run.built())
    assert "requests of full length" in shown and "users of" not in shown and "8k" not in shown


def test_techniques_stand_beside_ar_and_a_dearer_draft_shows(run: EnergisedRun) -> None:
    for place, tokens in ((AR, 180_000), (MTP, 175_000), (DFLASH, 160_000)):
        run.start(place, kv_tokens=tokens)
        run.start(place, "@2", kv_tokens=tokens)
    shown = page(run.built())
    assert shown.index("AR") < shown.index("dflash K=7") < shown.index("mtp K=4")
    assert "(\N{MINUS SIGN}11.1%)" in shown and "(\N{MINUS SIGN}2.8%)" in shown


NEEDLE = NeedleStep.model_validate({"step": "needle", "context_tokens": [512, 1024]})


def answer(tokens: int, depth: int, seed: int, *, found: bool, **facts: Any) -> Row:
    place = {"context_tokens": tokens, "depth_percent": depth, "seed": seed, "prompt_tokens": tokens - 1}
    text = {"gold": "1234567", "answer": "1234567" if found else None, "body": "It is 1234567"}
    return place | text | {"correct": found, "truncated": False, "blank": False} | facts


def built(store: Store, *cells: tuple[int, Sequence[Row]]) -> list[Row]:
    run = DemoRun(store, "r1", cells=tuple(each.model_copy(update={"steps": (NEEDLE,)}) for each in demo_plan().cells))
    for index, rows in cells:
        step = StepWriter(run.ledger, run.plan.cells[index].cell.cell_key, "needle").provenance()
        cut_off = ("1k 90 %", None, "suspect", ["truncated"], ["1 was cut off"])
        step.judge(*((name, None, *FINE) for name in ("512 10 %", "512 90 %", "1k 10 %")), cut_off)
        step.write(NEEDLES, rows).commit("suspect", ["truncated"])
    names = dict.fromkeys(RESULTS_CONSOLIDATED.column_names())
    return [names | row for row in run.built().results]


PLACES = [*product((512, 1024), (10, 90), range(3))]
AR_FOUND = [answer(*place, found=True) for place in PLACES]
MTP_FOUND = [
    *(answer(512, 10, seed, found=True) for seed in range(3)),
    *(answer(512, 90, seed, found=seed == 1) for seed in range(3)),
    *(answer(1024, 90, seed, found=False, truncated=seed == 2, blank=True) for seed in range(3)),
]


def test_a_row_is_found_of_asked_with_its_exact_interval_and_a_lost_needle_leaves_it_ok(local: Store) -> None:
    rows = {row["condition"]: row for row in built(local, (1, MTP_FOUND))}
    assert set(rows) == {"512 10 %", "512 90 %", "1k 90 %"}
    first = rows["512 10 %"]
    assert (first["metric"], first["extractor"], first["score"], first["n"]) == ("needle", "exact", 1.0, 3)
    assert (first["score_lo"], first["score_hi"]) == (pytest.approx(0.2924, abs=1e-4), 1.0)
    assert (first["context_tokens"], first["depth_percent"], first["concurrency"]) == (512, 10, 4)
    assert (first["verdict"], first["details"]) == ("ok", [])
    some = rows["512 90 %"]
    assert (some["verdict"], some["reasons"]) == ("ok", [])
    assert some["details"] == ["2 of 3 needles were not found (seeds 0, 2)"]
    lost = rows["1k 90 %"]
    assert (lost["score"], lost["truncated"], lost["blank"]) == (0.0, 1, 3)
    assert (lost["verdict"], lost["reasons"]) == ("suspect", ["truncated"]), "of this length and depth alone"


def test_the_page_has_a_grid_per_cell_that_needs_no_colour(local: Store) -> None:
    page = needle_section(View(built(local, (0, AR_FOUND), (1, MTP_FOUND)), [], [], 0)) or ""
    assert page.count("<table>") == 2 and page.count("at 10 %") == 2
    assert "3 of 3</span><small> (0.29 to 1.00)" in page
    assert "1 of 3 found</span>" in page
    assert "0 of 3 found, 1 cut off, 3 blank, suspect" in page
    assert page.count("\N{EN DASH}") == 1, "what mtp wasn't asked stands as a dash beside what AR was"
