"""Sweeps of the tiny family, measured by the real command, and what rows of a finished mirrored twin must have."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from configs.expand import default_run_id
from flows.plans import make_plan
from tests.busy_machine import BUSY_MACHINE, CALM_SHARE, KEPT_WAITING, Neighbours
from tests.command_lines import command_of, start_command
from tests.tasks.test_cell import processes_with, wait_until
from warehouse.dataset.tables import DIAGNOSTIC_EXTRACTORS
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Attempt, Leases
from warehouse.ledger.store import open_store

WAIT_S = 3600.0  # a wait, no judgement: alone the longest takes eleven minutes, beside other work it took over twenty
OTHERS_SHARE = "others-share"  # beside a store: of all processors' time, what others took while it was measured, 0 to 1


def start(sweep: str, folder: Path) -> subprocess.Popen[str]:
    return start_command("run", sweep, "--store", folder / "store", env={"SPECSWEEP_STATE": str(folder / "state")})


def finish(run: subprocess.Popen[str], within_s: float) -> None:
    try:
        said, _ = run.communicate(timeout=within_s)
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 0, said


def measure(sweep: str, folder: Path, within_s: float = WAIT_S) -> Path:
    with watched(folder):
        finish(start(sweep, folder), within_s)
    return folder / "store"


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Notes beside the store how much of the processors others took meanwhile."""
    neighbours = Neighbours()
    yield
    (folder / OTHERS_SHARE).write_text(f"{neighbours.share():.3f}", encoding="ascii")


class TinyRun:
    """A run of a shipped sweep of the tiny family, and what of it can be killed."""

    def __init__(self, sweep: str, folder: Path) -> None:
        self.folder, self.store, self.state = folder, folder / "store", folder / "state"
        self.plan = make_plan(sweep)
        self.ledger = Ledger(open_store(str(self.store)), default_run_id(self.plan))
        self.keys = {planned.cell.technique.name: planned.cell.cell_key for planned in self.plan.cells}

    def attempts(self, technique: str) -> list[Attempt]:
        return Leases(self.ledger, self.keys[technique]).attempts()

    def wait_in(self, technique: str, step: str) -> None:
        key = self.keys[technique]

        def is_in() -> bool:
            beat = Leases(self.ledger, key).heartbeat()
            return beat is not None and beat.step == step and self.ledger.read_commit(key, step) is None

        wait_until(is_in, f"the {technique} cell in its {step} step")

    def processes(self, word: str = "") -> list[int]:
        return [pid for pid in processes_with(str(self.state)) if word in command_of(pid)]

    def kill(self, word: str) -> None:
        """End all processes with this word, all frozen first: one that saw another end would end the rest kindly."""
        pids = self.processes(word)
        assert pids, f"no process of the run for {word!r}"
        for number, pid in product((signal.SIGSTOP, signal.SIGKILL), pids):
            os.kill(pid, number)


LOAD = ("step", "condition", "mode")

OF_STARTS = ("start_sd", "tok_s_lo", "tok_s_hi")  # what only several starts tell of a rate
OF_A_PAIR = ("ratio", "ratio_lo", "ratio_hi", "ratio_p", "ratio_p_holm")

CLAIMED = ("speedup", "speedup_lo", "speedup_hi")


STALLS = [*sorted(BUSY_MACHINE - KEPT_WAITING)]

MOST_STALLED = 0.5
"""Share of a run's streamed rows that may be accused of a stall. Beside other tests, at a load of ten, 3 of 52 of
k-sweep-tiny's were, at one or two 1 of 96 of speed-bench-tiny's and none of depth-tiny's 12 (2026-11-25)."""

FEWEST_STREAMED = 4  # of fewer rows a single pause may be in more than half
SPEEDS = ("depth decode", "depth prefill", "load natural", "prompts natural", "throughput fixed", "throughput natural")
"""Steps and modes that tell tokens per second."""

TIMED = (*SPEEDS, "load open", "throughput stream")

COUNTED = (*(each for each in TIMED if each not in ("depth prefill", "throughput stream")), "parity None")
"""Where the engine's counters of drafts are told: not of a prefill, nor of streams, which are a check of other rows."""

EVERYWHERE = (*TIMED, "eval-tiny None", "memory fixed", "parity None", "smoke None")

WHOLE = ~pl.col("condition").fill_null("").str.contains(", ")
"""Of a load all its categories together: what they share is the whole suite's."""


class Due(NamedTuple):
    """Columns that must not be empty in the rows of these places: `<step> <mode>`, with ` by <engine>` or without."""

    columns: str
    places: tuple[str, ...]
    among: pl.Expr = pl.lit(True)  # rows of which it can be asked; where none of them is ok, nobody asks


DUE = (
    Due("condition output_tokens mode visits prompt_tokens", (*TIMED, "memory fixed")),
    Due("context_tokens", ("depth decode", "depth prefill", "memory fixed", "throughput fixed", "throughput natural",
                           "throughput stream")),
    Due("concurrency", (*(each for each in TIMED if each != "load open"), "memory fixed")),
    Due("repeats", TIMED),
    Due("tok_s tok_s_lo tok_s_hi interval_scope repeat_sd start_sd cv", SPEEDS),
    Due("depth_tokens tok_s_mean tok_s_sd", ("depth decode", "depth prefill")),
    Due("peak_tok_s peak_tok_s_sd peak_window_s", ("depth decode",)),
    Due("ttft_ms first_chunk_tokens", ("depth prefill", "throughput stream")),
    Due("tpot_ms", ("depth decode", "throughput stream")),
    Due("chars_s", ("prompts natural", "throughput fixed", "throughput natural")),
    Due("usd_per_mtok", ("load natural", "prompts natural", "throughput fixed", "throughput natural")),
    Due("answer_tokens", ("load natural", "load open", "prompts natural", "throughput natural")),
    Due("dataset_revision", ("load natural", "load open")),
    Due("truncated", ("eval-tiny None", "prompts natural", "throughput natural")),
    Due("blank", ("eval-tiny None", "prompts natural")),
    Due("metric", ("eval-tiny None", "smoke None")),
    Due("score score_stderr n extractor score_lo score_hi samples", ("eval-tiny None",)),
    Due("parity_equal parity_n", ("parity None",), pl.col("technique") != "ar"),
    Due("seed", ("eval-tiny None",)),
    Due("host_peak_bytes", ("memory fixed",)),
    Due("weights_bytes", ("memory fixed by transformers-cpu",)),
    Due("kv_cache_bytes kv_tokens kv_bytes_per_token", ("memory fixed by vllm-cpu",)),
    Due("language answer_s", ("prompts natural",)),
    Due("programs programs_distinct programs_correct", ("prompts natural",),
        pl.col("condition").str.starts_with("program")),
    Due("k acceptance_source draft_revision", EVERYWHERE, pl.col("technique") != "ar"),
    Due("loaded_quantization loaded_dtype loaded_kv_cache_dtype loaded_max_model_len loaded_kv_tokens",
        tuple(f"{place} by vllm-cpu" for place in EVERYWHERE)),
    Due("gpu_s cost_usd", EVERYWHERE, WHOLE),
    # of several categories at once only their sum is counted
    Due("acceptance_length acceptance_by_position drafts drafted_tokens accepted_tokens tokens_per_step", COUNTED,
        (pl.col("technique") != "ar") & WHOLE),
)  # fmt: skip
"""What is told of which step and mode. A column that is named here is none of any other's."""

MAY_BE_EMPTY = {
    "a processor: no card, no driver, no known bandwidth": (
        "mbu energy_j_per_token power_w baseline_energy_j_per_token throttle_reasons graph_bytes "
        "engine_memory_peak_bytes gpu_memory_peak_bytes gpu_uuid gpu_driver gpu_clock_mhz gpus loaded_weights_bytes"
    ),
    "this machine: no cloud and no container": "image_digest region zone instance_type",
    "a machine with a processor of its own for the client": "engine_nice",
    "bf16, and as many requests at once as the engine likes": "loaded_formats loaded_max_num_seqs",
    "real weights, and no twin of block diffusion": "denoising_steps canvas_length made_up",
    "other evaluations' and the needle's": "readers_agree framework framework_version depth_percent",
    "outputs that parted, which none need": "first_divergence parity_near_ties divergence_margin",
    "of a draft beside an AR that is ok, too: see `assert_two_starts_are_told`, and the memory of speed-bench-tiny": (
        "speedup speedup_lo speedup_hi conclusion baseline_kv_tokens"
    ),
}
"""Columns that no row of these twins need have, by the reason why."""


def empty_columns(store: Path) -> list[tuple[str, str]]:
    """Step and mode, and the column that all their rows lack, though they are ok and have every reason to have it."""
    sound = results(store).filter(verdict="ok")
    excused = {name for names in MAY_BE_EMPTY.values() for name in names.split()}
    due = {name: each for each in DUE for name in each.columns.split()}
    found = []
    for (step, mode, engine), rows in sorted(sound.group_by("step", "mode", "engine"), key=str):
        place = f"{step} {mode}"
        for name in [name for name in rows.columns if name not in excused]:
            each = due.get(name)
            if each is None:
                asked = rows
            elif {place, f"{place} by {engine}"} & {*each.places}:
                asked = rows.filter(each.among)
            else:
                continue
            if asked.height and asked[name].null_count() == asked.height:
                found.append((place, name))
    return found


def results(store: Path) -> pl.DataFrame:
    return pl.read_parquet(store / "results_consolidated.parquet")


def accusations(rows: pl.DataFrame) -> list[dict[str, object]]:
    """Rows with a reason that a busy machine doesn't explain. Of streams that stalled it explains half, and not more.

    Readers that nobody counts by disagree with those that count: the family thinks of a wrong letter first, on purpose.
    """
    found = []
    streamed = rows.filter(pl.col("step").is_in(["depth", "load"]) | (pl.col("mode") == "stream"))
    stalled = streamed.filter(pl.col("reasons").list.set_intersection(STALLS).list.len() > 0)
    too_many = streamed.height >= FEWEST_STREAMED and stalled.height > MOST_STALLED * streamed.height
    for row in rows.iter_rows(named=True):
        by_design = {"extractors_disagree"} if row["extractor"] in DIAGNOSTIC_EXTRACTORS else set()
        explained = KEPT_WAITING if too_many else BUSY_MACHINE
        if set(row["reasons"]) - explained - by_design:
            found.append({name: row[name] for name in ("technique", "k", *LOAD, "verdict", "reasons", "details")})
    return found


def assert_two_starts_are_told(store: Path) -> None:
    """Every rate that may be believed has all that its starts, and AR's, tell of it.

    If there is none: skipped, where others used the processors meanwhile.
    """
    rates = results(store).filter(pl.col("tok_s").is_not_null())
    assert set(rates["visits"]) == {2}, "there and back"
    sound = rates.filter(verdict="ok")
    assert {name: sound[name].null_count() for name in OF_STARTS} == dict.fromkeys(OF_STARTS, 0)
    assert set(sound["interval_scope"]) <= {"between starts"}
    compared = sound.filter(pl.col("technique") != "ar").join(sound.filter(technique="ar"), on=LOAD, how="semi")
    pairs = pl.read_parquet(store / "pairs.parquet")
    placebos, speeds = pairs.filter(kind="placebo"), pairs.filter(kind="speed")
    has_failed = "differs" in placebos["conclusion"]  # of 5 % of sound runs AR against AR says so
    for row in compared.iter_rows(named=True):
        load = {name: row[name] for name in LOAD}
        pair = speeds.filter(cell_key=row["cell_key"], **load)
        assert pair.height == placebos.filter(**load).height == 1, load
        assert [name for name in OF_A_PAIR if pair[name][0] is None] == [], load
        withheld = CLAIMED[1:] if has_failed else ()
        assert [name for name in CLAIMED if row[name] is None] == [*withheld], row["details"]
    if not compared.height:
        others = float((store.parent / OTHERS_SHARE).read_text(encoding="ascii"))
        assert others > CALM_SHARE, "nobody disturbed this run, and no rate of it is ok: a guard accuses what is sound"
        pytest.skip(f"a busy machine spoiled every rate, and only ok ones are compared (others: {others:.0%})")


class SoundTwin:
    """Three tests of every mirrored twin; `store` is the fixture of the file whose class derives from this."""

    def test_what_both_starts_tell_of_a_speed_is_filled_in(self, store: Path) -> None:
        assert_two_starts_are_told(store)

    def test_every_column_that_is_due_is_filled_in(self, store: Path) -> None:
        assert empty_columns(store) == []

    def test_no_guard_accuses_the_sound_engine(self, store: Path) -> None:
        assert accusations(results(store)) == []
