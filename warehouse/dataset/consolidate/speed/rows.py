"""Speed rows of one comparison group: rates over all starts of a cell on one machine, latency, acceptance, bandwidth.

What needs the starts of the whole run (intervals, speedups) follows in `settled`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, fsum, sqrt
from statistics import fmean

from configs.cell import Cell
from configs.schema import PlannedCell
from configs.steps.throughput import NATURAL
from configs.visits import Role
from warehouse.dataset.consolidate.comparable import timed_differently, unlike_the_first
from warehouse.dataset.consolidate.inputs import CommittedStep, Group, Identity, Raw, Rows, baseline_among
from warehouse.dataset.consolidate.rows import (
    Judged,
    Machine,
    Made,
    Result,
    Row,
    Standing,
    base_row,
    by_cell,
    commit_seconds,
    joined,
    plain_row,
    shared,
    step_seconds,
    window_seconds,
)
from warehouse.dataset.consolidate.speed.starts import (
    STREAMED,
    ConditionMode,
    TimedStart,
    energy_of,
    median_of,
    repeats_of,
    start_of,
)
from warehouse.dataset.statistics.starts import StartRates
from warehouse.ledger.clock import usd_of
from warehouse.ledger.formulas import steps_of
from warehouse.ledger.tables import ENGINE_COUNTED
from warehouse.ledger.verdicts import Reason


def counted_acceptance(step: CommittedStep, raw: Raw) -> Row:
    """Counts and ratios over all of the step's attempts that ended; empty: nothing is drafted, or counted."""
    cell = step.planned.cell
    counted = raw.rows(step, ENGINE_COUNTED) if cell.technique.drafts else []
    if not counted:
        return {}
    worked = [row | {"completion_tokens": row["engine_generation_tokens"]} for row in counted]
    return acceptance_of(worked) | {"tokens_per_step": tokens_per_step(cell, worked)}


def speed_rows(group: Group, measured: Mapping[Identity, Sequence[TimedStart]], raw: Raw) -> Made:
    """One row per cell, condition and mode, and per start; steps that wrote no windows are not in `measured`."""
    homes: dict[tuple[str, Role], list[Machine]] = {}  # of each cell's complete starts, in their order
    for each in measured.values():
        last = next((visit for visit in each if visit.is_complete), None)
        if last is not None:
            homes.setdefault((last.step.cell_key, last.step.visit.role), []).append(last.machine)
    timed = [step for step in group if step.identity in measured]
    standings: dict[tuple[str, str, str], Standing] = {}
    cells, results = by_cell(group, raw)
    for steps in cells:
        visits = [visit for step in steps for visit in measured.get(step.identity, ())]
        if visits:
            first = visits[0].step
            found = standing(first, timed, homes)
            standings[first.run_id, first.cell_key, first.name] = found
            results += _cell_rows(visits, found.arm[-1], raw)
        else:
            results.append(plain_row(steps[0], raw))
    starts = []
    for each in measured.values():
        seen = [visit for visit in each if visit.windows or visit.requests]
        if seen:
            spent = shared(commit_seconds(seen[0].step, raw), [window_seconds(visit.windows) for visit in seen])
            starts += [start_of(visit, share) for visit, share in zip(seen, spent, strict=True)]
    return Made(results, visits=starts, standings=standings)


def standing(
    step: CommittedStep, timed: Sequence[CommittedStep], homes: Mapping[tuple[str, Role], list[Machine]]
) -> Standing:
    """What a cell is compared with, on the machine with most of its starts among those that have a baseline, too.

    `timed` are the measured steps of its group; `homes` the machines of the group's complete starts.
    """
    planned, own = step.planned, homes[step.cell_key, "cell"]
    role: Role = "control" if planned.control is not None else "cell"
    baseline, key = planned.control, step.cell_key
    if planned.control is None:
        found = baseline_among(planned, (other.planned for other in timed if other.visit.role == "cell"))
        baseline, key = (found.cell, found.cell.cell_key) if found is not None else (None, "")
    there = homes.get((key, role), [])
    machine = max(own, key=lambda each: (each is not None and each in there, own.count(each), -own.index(each)))
    refusal = "" if step.is_baseline else _refusal(baseline, machine, there)
    against = None if refusal or baseline is None else (step.run_id, key, step.name, role, machine)
    return Standing((step.run_id, step.cell_key, step.name, "cell", machine), against, refusal)


def _refusal(baseline: Cell | None, machine: Machine, there: Sequence[Machine]) -> str:
    """Why a cell on this machine has nothing to compare with; empty: it has."""
    if baseline is None:
        return f"{Reason.NO_BASELINE}: no AR cell of this run was measured"
    if not there:
        return f"{Reason.NO_BASELINE}: the cell's control was not measured"
    if machine is None:
        return f"{Reason.NO_CONTROL}: nobody recorded on which machine the cell was measured"
    return "" if machine in there else f"{Reason.NO_CONTROL}: AR was measured on another machine"


def _cell_rows(visits: Sequence[TimedStart], machine: Machine, raw: Raw) -> list[Result]:
    """A row per condition and mode, of the cell's starts on its machine; what is left out is named."""
    shapes: dict[ConditionMode, list[TimedStart]] = {}
    for visit in visits:
        if visit.is_complete and visit.machine == machine:
            shapes.setdefault(visit.shape, []).append(visit)
    elsewhere = sorted({f"{visit.machine}" for visit in visits if visit.machine != machine})
    rows: list[Result] = []
    order = sorted(shapes)
    taken = [window_seconds(window for visit in shapes[shape] for window in visit.windows) for shape in order]
    for shape, spent in zip(order, shared(step_seconds(visits[0].step, raw), taken), strict=True):
        own, unsteady = ([each for each in shapes[shape] if each.left_out is out] for out in (False, True))
        columns = base_row(own[0].step, raw, spent) | {"machine": machine} | _figures(shape, own)
        verdict = _of_one_engine(joined([visit.verdict for visit in own]), own)
        if elsewhere:
            left_out = f"measured on {', '.join(elsewhere)}, too: no part of this figure, which is {machine}'s"
            verdict = verdict.noting(left_out)
        for visit in unsteady:
            said = "; ".join(visit.verdict.details)
            verdict = verdict.noting(f"start {visit.step.visit.number} is unsteady, so it is left out: {said}")
        if cut := columns.get("truncated"):  # with all of them it is a fixed length after all
            asked = columns["output_tokens"]
            verdict = verdict.noting(f"answers that did not end by themselves within {asked} tokens: {cut}")
        rows.append(Result(columns, verdict))
    return rows


def _of_one_engine(verdict: Judged, visits: Sequence[TimedStart]) -> Judged:
    """Guard: starts without a recorded machine may be of several, and those of one figure must be served alike."""
    if visits[0].machine is None and len(visits) > 1:
        sentence = f"{len(visits)} visits, and nobody recorded on which machine"
        verdict = verdict.worsened("suspect", Reason.MIXED_MACHINES, sentence)
    clients = timed_differently([visit.place for visit in visits])
    if clients is not None:
        sentence = f"starts of one figure were timed by different clients, {clients}"
        verdict = verdict.worsened("suspect", Reason.CLIENT_DIFFERS, sentence)
    unlike = unlike_the_first([visit.place for visit in visits])
    if unlike:
        sentence = f"starts of one figure were served differently: {'; '.join(unlike)}"
        verdict = verdict.worsened("suspect", Reason.SERVING_DIFFERS, sentence)
    return verdict


def _figures(shape: ConditionMode, visits: Sequence[TimedStart]) -> Row:
    condition, mode = shape
    windows = [window for visit in visits for window in visit.windows]
    requests = [row for visit in visits for row in visit.requests]
    seen = windows or requests or [{}]
    row: Row = {"condition": condition, "mode": mode, "prompt_tokens": _prompt_tokens(windows, requests)}
    row |= {name: seen[0].get(name) for name in ("context_tokens", "output_tokens", "concurrency")}
    row |= {
        "repeats": repeats_of(visits),
        "visits": sum(bool(visit.windows or visit.requests) for visit in visits) or None,
    }
    if mode == "stream":
        return row | {name: median_of(requests, name) for name in STREAMED}
    row |= _ended(requests) if mode == NATURAL else {}
    rates = [visit.rates for visit in visits if visit.windows]
    if not windows or any(each is None for each in rates):
        return row
    return row | _rates([each for each in rates if each is not None], visits[0]) | _counted(visits, windows, row)


def _ended(requests: Rows) -> Row:
    """How long answers were that end by themselves, and how many the cap ended; nothing where no request was kept."""
    asked = sum(row["requests"] for row in requests)
    if not asked:
        return {}
    tokens = fsum(row["completion_tokens"] for row in requests)
    return {"answer_tokens": tokens / asked, "truncated": sum(row["cut_off"] for row in requests)}


def _rates(visits: Sequence[StartRates], first: TimedStart) -> Row:
    """The rate over all starts, and how much its repeats differ within one; intervals wait for the run's starts."""
    tok_s, price = exp(fmean(visit.log_rate for visit in visits)), first.place.get("price_usd_h")
    return {
        "tok_s": tok_s,
        "cv": spread_within(
            [[exp(each - visit.log_rate) for each in visit.log_rates] for visit in visits], relative=True
        ),
        "repeat_sd": spread_within([visit.log_rates for visit in visits]),
        "usd_per_mtok": usd_of(price, 1e6 / tok_s),
    }


def spread_within(groups: Sequence[Sequence[float]], *, relative: bool = False) -> float | None:
    """Standard deviation within groups, pooled over them, `relative` to each one's mean; None: none has two values."""
    freedom = sum(len(group) - 1 for group in groups)
    if freedom < 1:
        return None
    scales = [fmean(group) if relative else 1.0 for group in groups]
    squares = (
        ((each - fmean(group)) / scale) ** 2 for group, scale in zip(groups, scales, strict=True) for each in group
    )
    return sqrt(fsum(squares) / freedom)


def _counted(visits: Sequence[TimedStart], windows: Rows, row: Row) -> Row:
    """Ratios of sums over all windows: characters, acceptance, tokens per step, bandwidth, energy."""
    planned, place = visits[0].step.planned, visits[0].place
    chars, wall_s = total(windows, "chars"), fsum(window["wall_s"] for window in windows)
    cards = place.get("gpus") or planned.cell.cards
    return {
        "chars_s": chars / wall_s if chars else None,
        "mbu": bandwidth_use(planned, windows, cards, row["prompt_tokens"]),
        **(acceptance_of(windows) if planned.cell.technique.drafts else {}),
        "tokens_per_step": tokens_per_step(planned.cell, windows),
        **energy_of(windows),
    }


def acceptance_of(windows: Rows) -> Row:
    """Acceptance length 1 + accepted / drafts and accepted / drafts by position, over all repeats; and their counts."""
    drafts, accepted = total(windows, "engine_drafts"), total(windows, "engine_accepted_tokens")
    counted = {"drafts": drafts, "drafted_tokens": total(windows, "engine_draft_tokens"), "accepted_tokens": accepted}
    if not drafts or accepted is None:
        return counted
    row = {**counted, "acceptance_length": 1 + accepted / drafts}
    positions = [window["engine_accepted_by_position"] for window in windows]
    if any(counts is None for counts in positions):
        return row
    width = max(len(counts) for counts in positions)
    summed = [sum(counts[at] for counts in positions if at < len(counts)) for at in range(width)]
    return row | {"acceptance_by_position": [count / drafts for count in summed]}


def tokens_per_step(cell: Cell, windows: Rows) -> float | None:
    """Tokens over decoding steps, steps without a draft included; None: nothing is drafted, or not counted."""
    if not windows or not cell.technique.drafts:
        return None
    tokens, steps = total(windows, "completion_tokens"), decoding_steps(cell, windows)
    return tokens / steps if tokens and steps and steps > 0 else None


def _prompt_tokens(windows: Rows, requests: Rows) -> float | None:
    """Mean over requests, by the windows' sums, else by the requests that were kept."""
    sums = [(window["prompt_tokens"], window["requests"]) for window in windows]
    if not sums or any(tokens is None or not count for tokens, count in sums):
        sums = [(row["prompt_tokens"], row["requests"]) for row in requests if row["requests"]]
    asked = sum(count for _, count in sums)
    return sum(tokens for tokens, _ in sums) / asked if asked else None


def bandwidth_use(planned: PlannedCell, windows: Rows, cards: int, prompt_tokens: float | None) -> float | None:
    """Bytes that decoding must read per second over what the cards can read, at least; null where that isn't known.

    A step reads the active weights once, and for each sequence in flight the keys and values of its tokens so far: on
    average its prompt (`prompt_tokens` as sent, else as asked for) and half its output. A draft's own reads are not
    counted. `decoding_steps` are of single sequences, so a step of the engine has as many of them as it works on
    together. Cards add up. Source: Pope et al., arXiv 2211.05102, section 2.

    For a mixture of experts the bound is low as soon as a step works on several tokens, which read further experts (82
    of 128 at 16 tokens, not 8: `tasks/guards/steadiness.py`). No model's file says how many, nor what all tokens share.
    """
    cell, gpu = planned.cell, planned.gpu
    together = cell.serving.together(windows[0]["concurrency"] or 1)
    steps = decoding_steps(cell, windows)
    answer_tokens = _answer_tokens(windows)
    if gpu.bandwidth_gb_s is None or steps is None or steps <= 0 or answer_tokens is None:
        return None
    tokens = (prompt_tokens or windows[0]["context_tokens"] or 0) + answer_tokens / 2
    weights = cell.model.active_params_b * 1e9 * cell.precision.bytes_per_param
    cache = together * cell.kv_bytes_read(tokens)
    seconds = fsum(window["wall_s"] for window in windows)
    return (weights + cache) * steps / together / seconds / (gpu.bandwidth_gb_s * 1e9 * cards)


def _answer_tokens(windows: Rows) -> float | None:
    """As asked for, or the mean of answers that end by themselves; None: those were not counted."""
    if windows[0]["mode"] != NATURAL:
        return float(windows[0]["output_tokens"] or 0)
    tokens, requests = total(windows, "completion_tokens"), total(windows, "requests")
    return tokens / requests if tokens is not None and requests else None


def decoding_steps(cell: Cell, windows: Rows) -> int | None:
    """Steps of all sequences together; None: the engine did not count what it takes to know."""
    if cell.technique.denoises:
        return total(windows, "engine_denoising_steps")
    if cell.technique.is_baseline:
        return total(windows, "completion_tokens")
    steps = [steps_of(window, cell.engine.kind == "transformers") for window in windows]
    return None if None in steps else sum(each for each in steps if each is not None)


def total(windows: Rows, column: str) -> int | None:
    """Sum over windows; None if any of them lacks the figure."""
    values = [window[column] for window in windows]
    return None if any(value is None for value in values) else sum(values)
