"""The first thing on the page: which technique to run, how fast it is, what it costs in accuracy.

Only speedups of `ok` rows are quoted. Where the data can't support an answer, the sentence says so.
"""

from __future__ import annotations

from typing import NamedTuple

from warehouse.dataset.statistics.proportions import ALPHA
from warehouse.report.display.claims import control_of, cut_off_words, doubts, flags, is_faster, lossless, lost_needles
from warehouse.report.display.figures import (
    TIMES,
    Row,
    ar_name,
    figure,
    lengths,
    marks,
    plural,
    rate,
    signed,
    span,
    technique_label,
)
from warehouse.report.display.view import View, bench, headline_shape, load_shape, small_origin
from warehouse.report.no_claim import (
    by_rule,
    claimed_elsewhere,
    elsewhere,
    fails_accuracy,
    fails_parity,
    is_carried,
    no_speedup,
    parity_sentences,
    takes_ar,
    unclaimed,
    which_k,
    why_withheld,
)
from warehouse.report.trust_sections import unmeasured_caveats


class Answer(NamedTuple):
    """One recommendation: what it is about, what to run in a few words, and the evidence in a sentence or two."""

    about: str
    verdict: str
    evidence: str
    is_open: bool = False
    """Whether the data can't say. Such an answer comes after the others, the first of which is the headline."""


def answers(view: View) -> list[Answer]:
    """One answer per model, precision and machine that has anything but AR; if there are none, one that says so."""
    found: list[Answer] = []
    for model, engine, gpu in sorted({bench(row) for row in view.rows}):
        rows = [row for row in view.rates if bench(row) == (model, engine, gpu)]
        for precision in sorted({row["precision"] for row in rows}):
            arm = [row for row in rows if row["precision"] == precision]
            if any(row["technique"] != "ar" for row in arm):
                found.append(_answer(view, f"{model}, {precision}, on {gpu}", arm))
    if not found:
        return [Answer("", "Nothing to recommend yet.", "No technique has been measured beside AR.")]
    return sorted(found, key=lambda each: each.is_open)


def caveats(view: View) -> list[str]:
    """What a reader must not conclude; none where all was measured, of large models that were really run on a GPU."""
    rates = view.rates
    small, unreal = [row for row in rates if small_origin(row)], [row for row in rates if marks(row)]
    which_small, which_unreal = ("All" if len(some) == len(rates) else "Some" for some in (small, unreal))
    said = []
    if small:
        origins = " or from ".join(dict.fromkeys(map(small_origin, small)))
        said.append(
            f"{which_small} of these numbers come from {origins}. They were really measured, and judged like "
            "any other, but they are small: they show that the method works, not how a large model behaves on a GPU."
        )
    if unreal:
        words = " or ".join(dict.fromkeys(mark.words for row in unreal for mark in marks(row)))
        said.append(
            f"{which_unreal} of these numbers were measured with {words}: they show what the engine and the "
            "machine can do, not what the technique gains on real text."
        )
    return said + unmeasured_caveats(view)


def _answer(view: View, about: str, rows: list[Row]) -> Answer:
    shape = headline_shape(rows)
    if shape is None:
        return _by_workload(about, rows)
    here = [row for row in rows if load_shape(row) == shape]
    others = [row for row in here if row["technique"] != "ar"]
    known = [row for row in others if row["speedup"] is not None and row["verdict"] == "ok"]
    if not known:
        verdict, evidence = no_speedup(view, here)
        return Answer(about, verdict, " ".join([evidence, *claimed_elsewhere(view, here)]), is_open=True)
    barred = [*parity_sentences(others), *_flagged(others)]
    drafted = [row for row in known if why_withheld(view, row) is None]
    if not drafted:
        verdict, evidence = unclaimed(view, known)
        return Answer(about, verdict, " ".join([evidence, *barred, *claimed_elsewhere(view, here)]), is_open=True)
    barred += _withheld(view, known)
    faster = [row for row in drafted if is_faster(view, row)]
    kept = [row for row in faster if not fails_accuracy(view, row)]
    usable = [row for row in kept if not takes_ar(view, row)]
    if not usable:
        return _stay(view, about, drafted, faster, kept, barred)
    sound = [row for row in usable if is_carried(view, row)]
    best = by_rule(view, max(sound or usable, key=lambda row: row["speedup"]), sound or usable)
    skipped = [row for row in drafted if row["speedup"] > best["speedup"]]
    unless = "" if sound or marks(best) else ", if its accuracy holds"
    said = f"{technique_label(best)}: {figure(best['speedup'])} {TIMES} {ar_name(best)} at {shape.condition}{unless}."
    verdict = f"Without real weights there is nothing to recommend; {said}" if marks(best) else f"Run {said}"
    return Answer(about, verdict, " ".join([*_evidence(view, best, skipped), *barred]))


def _by_workload(about: str, rows: list[Row]) -> Answer:
    """No headline: a speedup on one kind of text is none on another."""
    said = "Only named workloads were timed here, and what a technique gains on one says little of the next."
    failing = dict.fromkeys(technique_label(row) for row in rows if fails_parity(row))
    if failing:
        said += f" Outputs that leave AR's where AR repeats itself: {', '.join(failing)}."
    return Answer(about, "By workload: see Workloads.", said)


def _stay(view: View, about: str, drafted: list[Row], faster: list[Row], kept: list[Row], barred: list[str]) -> Answer:
    """Nothing is recommended; what was faster but fails in accuracy, or is passed over, is named with the reason."""
    best = max(faster or drafted, key=lambda row: row["speedup"])
    evidence = [f"The best of {plural(len(drafted), 'other')} was {technique_label(best)} with {_gain(view, best)}."]
    if not faster:
        evidence += [*_corrected(view, best), *barred, *claimed_elsewhere(view, drafted)]
        return Answer(about, "Stay with AR: nothing else was shown to be faster.", " ".join(evidence))
    ruled = which_k(view, max(kept, key=lambda row: row["speedup"])) if kept else []
    evidence += [*ruled, _accuracy(view, best), *_unsettled(view, best), *barred]
    why = ["loses accuracy", "failed in it"] * (kept != faster) + ["is passed over by the rule for K"] * bool(kept)
    listed = ", ".join([*why[:-1], f"or {why[-1]}"] if len(why) > 1 else why)
    return Answer(about, f"Stay with AR: what is faster {listed}.", " ".join(evidence))


def _corrected(view: View, row: Row) -> list[str]:
    """A sentence where an interval above 1 is no claim, since several cells are held against AR."""
    pair = view.speed_pair(row)
    if pair is None or pair["ratio_lo"] <= 1 or (p := pair["ratio_p_holm"]) is None or p < ALPHA:
        return []
    return [f"Corrected for the run's other cells, that is no claim (p = {p:.3f}, Holm)."]


def _evidence(view: View, best: Row, skipped: list[Row]) -> list[str]:
    sentences = [
        f"{rate(best['tok_s'])} tokens/s{f' ({asked})' if (asked := lengths(best)) else ''}, {_gain(view, best)}.",
        *elsewhere(view, best),
        *which_k(view, best),
        _accuracy(view, best),
        *_unsettled(view, best),
        _parity(view, best),
    ]
    if skipped:
        names = ", ".join(technique_label(row) for row in skipped)
        sentences.append(
            "Faster, but not surely so, by no more than noise, losing accuracy or not shown to keep it, hence not "
            f"recommended: {names}."
        )
    return sentences


def _flagged(rows: list[Row]) -> list[str]:
    """A sentence about rows whose speed is no claim for what their guards found; `parity_sentences` has its own."""
    flagged = [row for row in rows if row["verdict"] != "ok" and not fails_parity(row)]
    found = [f"{technique_label(row)} ({flags(row)})" for row in flagged]
    return [f"Flagged, hence not compared: {', '.join(found)}."] if found else []


def _withheld(view: View, rows: list[Row]) -> list[str]:
    """A sentence about rows of other runs than the answer's, whose starts or whose AR support no claim."""
    reasons = [(row, why_withheld(view, row)) for row in rows]
    found = [f"{technique_label(row)} ({why} in run {row['run_id']})" for row, why in reasons if why]
    return [f"No claim is made about {', '.join(found)}."] if found else []


def _unsettled(view: View, row: Row) -> list[str]:
    """Sentences about what the comparisons don't cover: evaluations without one, and needles."""
    missing = [f"{doubt.step} ({doubt.why})" for doubt in doubts(view, row) if not doubt.is_compared]
    needles = lost_needles(view, row)
    return [
        *([f"Could not be compared with AR: {'; '.join(missing)}."] if missing else []),
        *([f"Of needles it found fewer than AR, or none that count: {'; '.join(needles)}."] if needles else []),
    ]


def _gain(view: View, row: Row) -> str:
    """`1.91 x AR (95 % interval 1.85 to 1.97 over 2 starts of it and 2 of AR)`."""
    gain, pair = f"{figure(row['speedup'])} {TIMES} {ar_name(row)}", view.speed_pair(row)
    assert pair is not None, "what has no interval is withheld"
    starts = f"{plural(pair['visits'], 'start')} of it and {pair['baseline_visits']} of AR"
    return f"{gain} (95 % interval {span(pair['ratio_lo'], pair['ratio_hi'])} over {starts})"


def _accuracy(view: View, row: Row) -> str:
    pair = view.accuracy_pair(row)
    if pair is None:
        return "What it costs in accuracy was not measured, or not on rows that passed."
    pairs = view.accuracy_pairs(row)
    others = f", the least favourable of {len(pairs)} evaluations" if len(pairs) > 1 else ""
    seen = (
        f"It scores {figure(pair['value'], 3)} where AR scores {figure(pair['baseline_value'], 3)} on the same "
        f"{pair['n']} questions of {pair['step']}{others} ({signed(pair['delta'])})"
    )
    claim = "lossless, as far as these data go; " if lossless(view, row) else ""
    found = [(words, each["step"]) for each in pairs if (words := cut_off_words(view, each))]
    cut_off = "".join(f"; but it {words} answers than AR in {step}" for words, step in found)
    return f"{seen}: {claim}{pair['wording']}{cut_off}."


def _parity(view: View, row: Row) -> str:
    parity = next(iter(view.of(run_id=row["run_id"], cell_key=row["cell_key"], step="parity")), None)
    if parity is None or parity["parity_n"] is None:
        return "Its outputs were not compared with AR's token for token."
    text = f"Greedy outputs equal AR's in {parity['parity_equal']} of {parity['parity_n']} prompts"
    control = control_of(view, parity)
    if control is None or control["parity_n"] is None:
        return f"{text}."
    return f"{text} (AR against itself: {control['parity_equal']} of {control['parity_n']})."
