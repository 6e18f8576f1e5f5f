"""What our guards say about figures that others published, as far as a write-up prints what a guard needs.

A guard that needs what is not printed stays silent: no K, no ceiling of a speculative cell; no length of the prompt, no
floor of a rate with its prefill.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from configs.cell import Cell
from configs.evals.suites import SUITES
from configs.load import load_gpu, load_model, load_precision, load_technique, names
from tasks.guards.answers import EVAL_CHANCE_P, at_chance
from tasks.guards.drafting import acceptance_out_of_range, dead_draft
from tasks.guards.finding import Finding, judge
from tasks.guards.speed import ceiling_tok_s, floor_tok_s, impossible_speed, step_bytes, stream_mismatch, too_slow
from tasks.meters import Counters
from warehouse.consolidate.speed.settled import TOKENS_SLACK
from warehouse.published.figures import PublishedRow
from warehouse.published.judged import JudgedRow
from warehouse.published.read import RATES, WriteUp, load_write_up, write_ups
from warehouse.verdicts import Reason

_model = cache(load_model)

ROUNDING = 0.02
"""Most by which a figure may differ from the same one made of other published figures. Two digits, as in 8.8 or 68
tok/s, are off by up to 0.7 %, seconds like 1.03 by 0.5 %; a ratio of two such is off by more than either."""


@cache
def judged_write_ups() -> tuple[JudgedRow, ...]:
    """Every published row, judged."""
    return tuple(judged for name in write_ups() for judged in judge_write_up(load_write_up(name)))


def judge_write_up(write_up: WriteUp) -> Iterator[JudgedRow]:
    """The rows of one write-up with their verdicts."""
    for row in write_up.rows:
        verdict = judge(row.condition, row.mode, _findings(write_up, row))
        reasons = tuple(dict.fromkeys(finding.reason for finding in verdict.findings))
        sentences = tuple(finding.sentence for finding in verdict.findings)
        yield JudgedRow(write_up, row, verdict.verdict, reasons, sentences)


def _findings(write_up: WriteUp, row: PublishedRow) -> list[Finding | None]:
    cell = _cell(row)
    return [
        *([] if cell is None else _bandwidth(write_up, row, cell)),
        *_drafting(row),
        *_speedup(write_up, row),
        _burst(write_up, row),
        _disagreement(_made_twice(row)),
        _guessed(row),
    ]


def _cell(row: PublishedRow) -> Cell | None:
    """What was served, as a cell of ours; None: the source names no single model."""
    if row.model not in names("models") or row.precision is None:
        return None
    return Cell.model_validate(
        {
            "model": _model(row.model),
            "precision": load_precision(row.precision),
            "technique": load_technique(row.technique),
            "k": row.k,
            "engine": {"name": "published", "args": ("--kv-cache-dtype", row.kv_cache_dtype)},
            "serving": {"max_model_len": 1},
        }
    )


def _bandwidth(write_up: WriteUp, row: PublishedRow, cell: Cell) -> Iterator[Finding | None]:
    """Not faster than the card's memory, and AR alone not far below what it gives."""
    gpu, most = load_gpu(write_up.gpu), _most_per_step(row)
    whole = row.tok_s if row.tok_s is not None or not row.tokens or not row.wall_s else row.tokens / row.wall_s
    if row.concurrency is None:
        return
    read = step_bytes(cell, row.context_tokens or 0, row.output_tokens or 1, row.concurrency)
    ceiling = ceiling_tok_s(cell, gpu, read, most, row.concurrency)
    for rate in (whole, row.decode_tok_s):
        if rate is not None:
            yield impossible_speed(rate, ceiling)
    is_short = (row.context_tokens or 0) <= (row.output_tokens or 0)
    decoding = row.decode_tok_s or (whole if is_short else None)
    if row.is_baseline and row.concurrency == 1 and decoding is not None:
        yield too_slow(decoding, floor_tok_s(cell, gpu, read))


def _most_per_step(row: PublishedRow) -> float | None:
    """Tokens that a step commits at the most, whatever the text; None: K, or how much is denoised, isn't published."""
    return 1.0 if row.is_baseline else None if row.k is None else row.k + 1


def _drafting(row: PublishedRow) -> Iterator[Finding | None]:
    """The acceptance that is published can be, and is one of a draft that lives."""
    if row.accepted_tokens is None and row.acceptance_rate is None:
        return
    accepted = row.accepted_tokens if row.drafts else (row.acceptance_rate or 0.0) * (row.k or 1)
    counted = Counters(
        generation_tokens=None,
        requests_finished=None,
        drafts=row.drafts or 1,
        draft_tokens=row.draft_tokens,
        accepted_tokens=accepted,
        accepted_by_position=row.acceptance_by_position,
        denoising_steps=None,
        committed_tokens=None,
        prefix_hits=None,
        preemptions=None,
    )
    yield acceptance_out_of_range(row.k, counted)
    yield dead_draft(load_technique(row.technique), counted)


def _speedup(write_up: WriteUp, row: PublishedRow) -> Iterator[Finding | None]:
    """The ratio is that of its rates, its AR is sound, and no more is gained than committed per step."""
    if row.speedup is None:
        return
    baseline = _baseline(write_up, row)
    if baseline is not None:
        yield _disagreement(_ratios(row, baseline))
        beneath = judge(None, None, _findings(write_up, baseline))
        if beneath.verdict != "ok":
            why = "; ".join(finding.sentence for finding in beneath.findings)
            yield Finding(Reason.NO_BASELINE, "suspect", f"{row.speedup:g} x AR, and that AR row is not ok: {why}")
    most = _tokens_per_step(write_up, row)
    if most is not None and row.speedup > most * TOKENS_SLACK:
        sentence = f"{row.speedup:g} x AR with {most:.2f} tokens per decoding step: these two can't go together"
        yield Finding(Reason.SPEEDUP_ABOVE_ACCEPTANCE, "suspect", sentence)


def _baseline(write_up: WriteUp, row: PublishedRow) -> PublishedRow | None:
    if row.model not in names("models"):
        return None
    return write_up.baseline_of(row, _model(row.model).compared_as)


def _tokens_per_step(write_up: WriteUp, row: PublishedRow) -> float | None:
    """Of the row itself; else as counted over the same texts elsewhere in the write-up; else the most that K allows."""
    if row.acceptance_length is not None:
        return row.acceptance_length
    if row.accepted_per_draft is not None:
        return 1 + row.accepted_per_draft
    counted = (
        each
        for each in write_up.rows
        if each.drafts and (each.model, each.technique, each.k, each.workload) == _drafted(row)
    )
    same = next(counted, None)
    if same is None or same.accepted_tokens is None or not same.drafts:
        return _most_per_step(row)
    return 1 + same.accepted_tokens / same.drafts


def _drafted(row: PublishedRow) -> tuple[str | None, str, int | None, str | None]:
    return row.model, row.technique, row.k, row.workload


def _ratios(row: PublishedRow, baseline: PublishedRow) -> dict[str, tuple[float, float]]:
    """The published speedup beside that of the rates; of several rates the source means one, which is the nearest."""
    ours, theirs = row.figures, baseline.figures
    made = [
        theirs[name] / ours[name] if name == "wall_s" else ours[name] / theirs[name]
        for name in sorted(RATES & ours.keys() & theirs.keys())
    ]
    if row.speedup is None or not made:
        return {}
    said = row.speedup
    return {"speedup": (said, min(made, key=lambda ratio: abs(ratio / said - 1)))}


def _made_twice(row: PublishedRow) -> dict[str, tuple[float, float]]:
    """Figures that follow from others of the row: as published, and as made of those."""
    made: dict[str, tuple[float | None, float | None]] = {
        "tok_s": (row.tok_s, _over(row.tokens, row.wall_s)),
        "chars_s": (row.chars_s, _over(row.chars, row.wall_s)),
        "accepted_per_draft": (row.accepted_per_draft, _over(row.accepted_tokens, row.drafts)),
        "acceptance_rate": (row.acceptance_rate, _over(row.accepted_tokens, row.draft_tokens)),
        "acceptance_by_position": (_sum(row.acceptance_by_position), _over(row.accepted_tokens, row.drafts)),
        "theory_speedup": (row.theory_speedup, _over(row.acceptance_length, row.drafter_cost)),
        "theory_share": (row.theory_share, _over(row.speedup, row.theory_speedup)),
    }
    return {name: (said, other) for name, (said, other) in made.items() if said is not None and other is not None}


def _sum(shares: tuple[float, ...] | None) -> float | None:
    return None if shares is None else sum(shares)


def _over(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _disagreement(twice: dict[str, tuple[float, float]]) -> Finding | None:
    apart = [
        f"{name} is {said:g}, and {made:.3g} by the other figures"
        for name, (said, made) in twice.items()
        if abs(said - made) > ROUNDING * max(said, made)
    ]
    return Finding(Reason.FIGURES_DISAGREE, "suspect", "; ".join(apart)) if apart else None


def _burst(write_up: WriteUp, row: PublishedRow) -> Finding | None:
    """A streamed gain must be that of the same work without streaming: chunks counted as tokens under-count by K."""
    if row.mode != "stream" or row.speedup is None:
        return None
    whole = [each for each in write_up.rows if _is_twin(row, each)]
    bases = [base for each in whole if (base := _baseline(write_up, each)) is not None]
    streamed = [row.speedup * base.tok_s for base in bases if base.tok_s is not None]
    fixed = [each.tok_s for each in whole if each.tok_s is not None]
    return stream_mismatch(streamed, fixed) if fixed else None


def _is_twin(row: PublishedRow, other: PublishedRow) -> bool:
    """Whether another row is the same work without streaming, of that model or of a model of that family."""
    if other.model not in names("models") or other.mode == "stream" or other.tok_s is None:
        return False
    shape = (other.precision, other.technique, other.condition, other.concurrency)
    ours = (row.precision, row.technique, row.condition, row.concurrency)
    return shape == ours and row.model in (other.model, _model(other.model).family)


def _guessed(row: PublishedRow) -> Finding | None:
    """Better than guessing; where the number of items isn't published, with all that the suite has."""
    if row.suite is None or row.score is None or (chance := SUITES[row.suite].chance) is None:
        return None
    n = row.n or SUITES[row.suite].items
    found = at_chance(round(row.score * n), n, chance, EVAL_CHANCE_P)
    if found is None or row.n is not None:
        return found
    return found._replace(sentence=f"{found.sentence} (n isn't published: taken as the suite's)")
