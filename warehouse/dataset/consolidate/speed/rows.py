"""Speed rows of one comparison group: rates over all visits of a cell, latency, acceptance, bandwidth.

What needs the visits of the whole run (intervals, speedups) follows in `settled`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, fsum, sqrt
from statistics import fmean

from configs.steps.throughput import NATURAL
from warehouse.dataset.consolidate.costs import commit_seconds, is_first, shared, step_seconds, window_seconds
from warehouse.dataset.consolidate.inputs import CommittedStep, Group, Identity
from warehouse.dataset.consolidate.raw import Raw, Rows
from warehouse.dataset.consolidate.rows import (
    Judged,
    Made,
    Row,
    base_row,
    joined,
    plain_row,
    verdict_columns,
    verdict_of,
)
from warehouse.dataset.consolidate.serving import timed_differently, unlike_the_first
from warehouse.dataset.consolidate.speed.arms import Machine, Standing, homes_of, standing
from warehouse.dataset.consolidate.speed.bandwidth import bandwidth_use, decoding_steps, total
from warehouse.dataset.consolidate.speed.visits import (
    STREAMED,
    Shape,
    Visited,
    energy_of,
    median_of,
    repeats_of,
    visit_row,
)
from warehouse.dataset.statistics.visits import VisitRates
from warehouse.ledger.price import usd_of
from warehouse.ledger.tables import ENGINE_COUNTED
from warehouse.ledger.verdicts import Reason


def counted_acceptance(step: CommittedStep, raw: Raw) -> Row:
    """Counts and ratios over all of the step's attempts that ended; empty: nothing is drafted, or nobody counted."""
    cell = step.planned.cell
    counted = raw.rows(step, ENGINE_COUNTED) if cell.technique.drafts else []
    if not counted:
        return {}
    worked = [row | {"completion_tokens": row["engine_generation_tokens"]} for row in counted]
    tokens, steps = total(worked, "completion_tokens"), decoding_steps(cell, worked)
    return acceptance_of(worked) | {"tokens_per_step": tokens / steps if tokens and steps and steps > 0 else None}


STANDING = "standing"
"""Key under which a speed row carries its `Standing`, until `settled` takes it out. No column."""

NOT_MEASURED = Judged(
    "suspect",
    (Reason.NOT_MEASURED,),
    ("the cell's control was measured, the cell itself was not (yet): these are the control's seconds",),
)


def speed_rows(group: Group, measured: Mapping[Identity, Sequence[Visited]], raw: Raw) -> Made:
    """One row per cell, condition and mode, and one per visit, condition, mode and machine.

    Args:
        group: steps of one kind that are compared with each other.
        measured: what they measured, by the step's identity; those that wrote no windows are missing.
        raw: holds verdicts and provenance.
    """
    made = Made([], [], [row for visits in measured.values() for row in _visit_rows(visits, raw)])
    homes = homes_of(measured)
    others = [step for step in group if step.identity in measured]
    cells: dict[str, list[CommittedStep]] = {}
    for step in sorted(group, key=lambda each: each.visit.number):
        if step.visit.role == "cell":
            cells.setdefault(step.cell_key, []).append(step)
    made.results.extend(
        base_row(step, raw, NOT_MEASURED, step_seconds(step, raw))
        for step in group
        if step.cell_key not in cells and is_first(step, raw)
    )
    for steps in cells.values():
        visits = [visit for step in steps for visit in measured.get(step.identity, ())]
        if visits:
            made.results.extend(_cell_rows(visits, standing(visits[0].step, others, homes), raw))
        else:
            made.results.append(plain_row(steps[0], raw))
    return made


def _visit_rows(visits: Sequence[Visited], raw: Raw) -> list[Row]:
    """Rows of one commit, with its seconds shared among them."""
    seen = [visit for visit in visits if _is_measured(visit)]
    if not seen:
        return []
    shares = shared(commit_seconds(seen[0].step, raw), [window_seconds(visit.windows) for visit in seen])
    return [visit_row(visit, spent) for visit, spent in zip(seen, shares, strict=True)]


def _is_measured(visit: Visited) -> bool:
    return bool(visit.windows or visit.requests)


def _cell_rows(visits: Sequence[Visited], stands: Standing, raw: Raw) -> list[Row]:
    """A row per condition and mode, of the cell's visits on its machine; the others are named, and left out."""
    machine: Machine = stands.arm[-1]
    complete = [visit for visit in visits if visit.is_complete]
    shapes: dict[Shape, list[Visited]] = {}
    for visit in complete:
        if visit.machine == machine:
            shapes.setdefault(visit.shape, []).append(visit)
    elsewhere = sorted({f"{visit.machine}" for visit in visits if visit.machine != machine})
    left_out = f"measured on {', '.join(elsewhere)}, too: no part of this figure, which is {machine}'s"
    rows: list[Row] = []
    order = sorted(shapes)
    taken = [window_seconds(window for visit in shapes[shape] for window in visit.windows) for shape in order]
    for shape, spent in zip(order, shared(step_seconds(visits[0].step, raw), taken), strict=True):
        verdict = _of_one_engine(joined([visit.verdict for visit in shapes[shape]]), shapes[shape])
        row = base_row(shapes[shape][0].step, raw, verdict.noting(left_out) if elsewhere else verdict, spent)
        row |= {"machine": machine, STANDING: stands} | _figures(shape, shapes[shape])
        rows.append(row | verdict_columns(_of_its_cap(row)))
    return rows


def _of_one_engine(verdict: Judged, visits: Sequence[Visited]) -> Judged:
    """Guard: visits whose machine nobody recorded may be of several, and those of one figure must be served alike."""
    if visits[0].machine is None and len(visits) > 1:
        sentence = f"{len(visits)} visits, and nobody recorded on which machine"
        verdict = verdict.worsened("suspect", Reason.MIXED_MACHINES, sentence)
    clients = timed_differently([visit.place for visit in visits])
    if clients is not None:
        sentence = f"visits of one figure were timed by different clients, {clients}"
        verdict = verdict.worsened("suspect", Reason.CLIENT_DIFFERS, sentence)
    unlike = unlike_the_first([visit.place for visit in visits])
    if unlike:
        sentence = f"visits of one figure were served differently: {'; '.join(unlike)}"
        verdict = verdict.worsened("suspect", Reason.SERVING_DIFFERS, sentence)
    return verdict


def _figures(shape: Shape, visits: Sequence[Visited]) -> Row:
    """What the visits measured of one condition, as columns."""
    condition, mode = shape
    windows = [window for visit in visits for window in visit.windows]
    requests = [row for visit in visits for row in visit.requests]
    seen = windows or requests or [{}]
    row: Row = {"condition": condition, "mode": mode, "prompt_tokens": _prompt_tokens(windows, requests)}
    row |= {name: seen[0].get(name) for name in ("context_tokens", "output_tokens", "concurrency")}
    row |= {"repeats": repeats_of(visits), "visits": len([visit for visit in visits if _is_measured(visit)]) or None}
    if mode == "stream":
        return row | {name: median_of(requests, name) for name in STREAMED}
    row |= _ended(requests) if mode == NATURAL else {}
    rates = [visit.rates for visit in visits if visit.windows]
    if not windows or any(each is None for each in rates):
        return row
    return row | _rates([each for each in rates if each is not None], visits[0]) | _counted(visits, windows, row)


def _of_its_cap(row: Row) -> Judged:
    """Note where answers that should end by themselves were ended: with all of them it is a fixed length after all."""
    verdict, cut = verdict_of(row), row.get("truncated")
    if not cut:
        return verdict
    return verdict.noting(f"answers that did not end by themselves within {row['output_tokens']} tokens: {cut}")


def _ended(requests: Rows) -> Row:
    """How long answers were that end by themselves, and how many the cap ended; nothing where no request was kept."""
    asked = sum(row["requests"] for row in requests)
    if not asked:
        return {}
    tokens = fsum(row["completion_tokens"] for row in requests)
    return {"answer_tokens": tokens / asked, "truncated": sum(row["cut_off"] for row in requests)}


def _rates(visits: Sequence[VisitRates], first: Visited) -> Row:
    """The rate over all visits, and how much its repeats differ within one; intervals wait for the run's visits."""
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
    """Standard deviation within groups, pooled over them; None: no group has two values.

    Args:
        groups: values.
        relative: over the mean of each group.
    """
    freedom = sum(len(group) - 1 for group in groups)
    if freedom < 1:
        return None
    scales = [fmean(group) if relative else 1.0 for group in groups]
    squares = (
        ((each - fmean(group)) / scale) ** 2 for group, scale in zip(groups, scales, strict=True) for each in group
    )
    return sqrt(fsum(squares) / freedom)


def _counted(visits: Sequence[Visited], windows: Rows, row: Row) -> Row:
    """Ratios of sums over all windows: characters, acceptance, tokens per step, bandwidth, energy."""
    planned, place = visits[0].step.planned, visits[0].place
    chars, wall_s = total(windows, "chars"), fsum(window["wall_s"] for window in windows)
    cards = place.get("gpus") or planned.cell.cards
    return {
        "chars_s": chars / wall_s if chars else None,
        "mbu": bandwidth_use(planned, windows, cards, row["prompt_tokens"]),
        **(acceptance_of(windows) if planned.cell.technique.drafts else {}),
        "tokens_per_step": _tokens_per_step(visits[0], windows),
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


def _tokens_per_step(visit: Visited, windows: Rows) -> float | None:
    """Tokens over decoding steps, steps without a draft included; null: nothing is drafted, or not counted."""
    cell = visit.step.planned.cell
    steps = decoding_steps(cell, windows) if cell.technique.drafts else None
    tokens = total(windows, "completion_tokens")
    return None if tokens is None or steps is None or steps <= 0 else tokens / steps


def _prompt_tokens(windows: Rows, requests: Rows) -> float | None:
    """Mean over requests, by the windows' sums, else by the requests that were kept."""
    sums = [(window["prompt_tokens"], window["requests"]) for window in windows]
    if not sums or any(tokens is None or not count for tokens, count in sums):
        sums = [(row["prompt_tokens"], row["requests"]) for row in requests if row["requests"]]
    asked = sum(count for _, count in sums)
    return sum(tokens for tokens, _ in sums) / asked if asked else None
