"""Results as tables for people: the rows of one run, which K, and published results of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from rich.console import Group, RenderableType
from rich.text import Text

from configs.steps.load import BETWEEN, OPEN
from configs.steps.throughput import NATURAL
from flows.matrix import Column, Matrix, sentences, words
from warehouse.dataset.snapshot import read_current
from warehouse.dataset.tables import DIAGNOSTIC_EXTRACTORS, RECOMMENDATIONS
from warehouse.ledger.store import Store
from warehouse.ledger.verdicts import Reason
from warehouse.report.answer import Answer, answers
from warehouse.report.display.figures import technique_name
from warehouse.report.display.view import LOAD_STEP, make_view
from warehouse.report.page import current_tables
from warehouse.report.published.read import UNITS, Published

FIGURES = ("tok_s", "speedup", "acceptance_length", "score", "parity")
HEADINGS = {"tok_s": "tok/s", "acceptance_length": "accept."}  # of columns that are headed otherwise
UNANSWERED = (Reason.REQUEST_FAILED, Reason.SHORT_OUTPUT)  # what else rejects a row may be this machine's doing
IS_PART = (pl.col("step") == "load") & pl.col("condition").str.contains(BETWEEN, literal=True)  # of a load's row
STYLES = {"ok": "green", "suspect": "yellow", "rejected": "red"}


def result_rows(store: Store, run_id: str) -> list[dict[str, str]]:
    """One dict of texts per consolidated row of the run; streamed twins, categories, diagnostics are the report's."""
    frame = read_current(store)
    is_diagnostic = pl.col("extractor").is_in(DIAGNOSTIC_EXTRACTORS).fill_null(False)
    is_headline = pl.col("mode").is_null() | pl.col("mode").is_in(["fixed", NATURAL, OPEN, "prefill", "decode"])
    headline = is_headline & ~is_diagnostic & ~IS_PART.fill_null(False)
    chosen = frame.filter((pl.col("run_id") == run_id) & headline)
    return [{"model": row["model"]} | _texts(row) for row in chosen.iter_rows(named=True)]


def results_table(store: Store, run_id: str) -> Group:
    """The same rows for the terminal: those with a rate, then all others, and why some aren't ok; fits 80 columns.

    The title names the run's model; if it has several, each row names its own.
    """
    rows = result_rows(store, run_id)
    models = sorted({row["model"] for row in rows})
    if len(models) > 1:
        rows = [row | {"cell": f"{row['model']} {row['cell']}"} for row in rows]
    title = f"results_consolidated, run {run_id}{f': {models[0]}' if len(models) == 1 else ''}"
    parts: list[RenderableType] = [Text(title, style="italic")]
    parts += [_matrix(some) for some in ([r for r in rows if r["tok_s"]], [r for r in rows if not r["tok_s"]]) if some]
    why: dict[str, list[str]] = {}
    for row in rows:
        if _word(row) != row["verdict"]:
            why.setdefault(row["verdict"], []).append(f"{row['cell']}, {_step(row)}")
    said = [Text(f"{verdict}: {'; '.join(those)}", STYLES[verdict.split(" ")[0]]) for verdict, those in why.items()]
    return Group(*parts, *said)


def _matrix(rows: Sequence[Mapping[str, str]]) -> Matrix:
    verdicts = [Text(_word(row), STYLES[_word(row)]) for row in rows]  # in front: no figure is shown without its own
    names = [
        words("cell", [row["cell"] for row in rows]),
        words("step", [_step(row) for row in rows]),
        words("verdict", verdicts),
    ]
    columns = []
    for name in FIGURES:
        figures = [row[name].replace(" ", "\n", 1) for row in rows]  # may break before an interval
        if any(figures):
            columns.append(Column(HEADINGS.get(name, name), figures))
    return Matrix(names, columns)


def _step(row: Mapping[str, str]) -> str:
    return f"{row['step']} {row['condition']}".strip()


def _word(row: Mapping[str, str]) -> str:
    """The verdict without its reasons."""
    return row["verdict"].split(" ")[0]


def unanswered_rows(store: Store, run_id: str) -> list[str]:
    """Cell, condition and reason of each row of the run whose requests failed, or came back short; a load's as one."""
    frame = read_current(store).filter(run_id=run_id)
    named = []
    for row in frame.iter_rows(named=True):
        if reasons := [reason for reason in row["reasons"] if reason in UNANSWERED]:
            condition = (row["condition"] or row["step"]).split(BETWEEN)[0]
            named.append(f"{row['model']} {_texts(row)['cell']}, {condition} ({', '.join(reasons)})")
    return [*dict.fromkeys(named)]


def answers_of(store: Store, run_id: str) -> list[Answer]:
    """What the run's rows alone answer, as the page would say it; StoreError: nothing was published yet."""
    _, tables = current_tables(store)
    return answers(make_view({name: table.filter(run_id=run_id) for name, table in tables.items()}))


def recommendations_table(store: Store, run_id: str) -> Matrix | None:
    """Which K for each condition of the run, or why none; None: it has no two K. Categories are the report's."""
    frame = read_current(store, RECOMMENDATIONS.name).filter(run_id=run_id)
    rows = [*frame.filter(~IS_PART).iter_rows(named=True)]
    if not rows:
        return None
    cells = [f"{row['model']} {row['precision']} {row['technique']}" for row in rows]
    why = [Text(row["wording"], style="yellow" if row["k"] is None else "") for row in rows]
    names = [words("cells", cells), words("condition", [row["condition"] or "" for row in rows])]
    return Matrix(names, [sentences("why", why)], "which K")


def _texts(row: Mapping[str, Any]) -> dict[str, str]:
    steps = None if row["made_up"] else row["denoising_steps"]
    asked = {"K": row["k"], "denoising_steps": steps, "canvas_length": row["canvas_length"]}
    tail = "".join(f" {name}={number}" for name, number in asked.items() if number is not None)
    made_up = f" ({row['made_up']})" if row["made_up"] else ""
    natural = " (natural)" if row["mode"] == NATURAL and row["step"] != LOAD_STEP else ""
    reasons = f" ({', '.join(row['reasons'])})" if row["reasons"] else ""
    return {
        "cell": f"{row['precision']} {row['technique']}{tail}{made_up}",
        "step": row["step"],
        "condition": f"{row['condition'] or ''}{natural}",
        "verdict": row["verdict"] + reasons,
        "tok_s": _range(row["tok_s"], row["tok_s_lo"], row["tok_s_hi"], "{:.0f}"),
        "speedup": _range(row["speedup"], row["speedup_lo"], row["speedup_hi"], "{:.2f}"),
        "acceptance_length": "" if row["acceptance_length"] is None else f"{row['acceptance_length']:.2f}",
        "score": "" if row["score"] is None else f"{row['score']:.3f} (n={row['n']})",
        "parity": "" if row["parity_n"] is None else f"{row['parity_equal']}/{row['parity_n']}",
    }


def _range(value: float | None, low: float | None, high: float | None, form: str) -> str:
    if value is None:
        return ""
    text = form.format(value)
    return text if low is None or high is None else f"{text} [{form.format(low)}, {form.format(high)}]"


def published_tables(judged: Sequence[Published]) -> Group:
    """One table per write-up; fits 80 columns."""
    parts: list[RenderableType] = []
    for name in dict.fromkeys(each.write_up.name for each in judged):
        rows = [each for each in judged if each.write_up.name == name]
        found = rows[0].write_up
        where = f"{found.date}, {found.hardware}; {found.engine}"
        parts += [Text(f"{name}: {found.title}\n  {found.source}\n  {where}", style="bold"), _published_table(rows)]
    flagged = sum(each.row.verdict != "ok" for each in judged)
    return Group(*parts, Text(f"{len(judged)} published rows, {flagged} of them flagged"))


def _published_table(rows: Sequence[Published]) -> Matrix:
    cells, conditions, all_figures, verdicts = list[str](), list[str](), list[str](), list[Text]()
    for each in rows:
        row = each.row
        cells.append(f"{row.model or 'not said'} {row.precision or ''} {technique_name(row.model_dump())}")
        conditions.append(" ".join(filter(None, (row.condition, row.workload, row.suite, row.framework))))
        sds = {name: f" ± {value:g}" for name, value in row.sd.items() if value is not None}
        figures = [f"{name} {value:.10g}{sds.get(name, '')}" for name, value in row.figures.items()]
        if row.acceptance_by_position:
            figures.append("by position " + " ".join(f"{share:.3g}" for share in row.acceptance_by_position))
        why = "".join(f"\n{sentence}" for sentence in row.details)
        verdict = f"{each.row.verdict}{' ' if row.reasons else ''}{', '.join(row.reasons)}{why}"
        all_figures.append(", ".join(figures))
        verdicts.append(Text(verdict, STYLES[each.row.verdict]))
    columns = [sentences("figures", all_figures), sentences("verdict", verdicts)]
    return Matrix([words("cell", cells), words("condition", conditions)], columns)


def published_document(judged: Sequence[Published]) -> dict[str, Any]:
    """The same as one JSON document: sources once, rows with only what their source prints."""
    sources = {each.write_up.name: each.write_up.model_dump(exclude={"tables"}) for each in judged}
    rows = [each.row.model_dump(mode="json", exclude_none=True) | {"source": each.write_up.name} for each in judged]
    return {"sources": sources, "units": UNITS, "rows": rows}
