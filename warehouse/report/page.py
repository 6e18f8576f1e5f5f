"""The whole page: answer first, evidence after, nothing hidden, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from warehouse.report.answer import answers, caveat
from warehouse.report.cost_section import cost_section
from warehouse.report.figures import moment, plural
from warehouse.report.markup import Markup, join, tag
from warehouse.report.quality_sections import accuracy_section, parity_section
from warehouse.report.speed_sections import acceptance_section, baseline_section, latency_section, speed_section
from warehouse.report.style import STYLE
from warehouse.report.trust_sections import attempts_section, flagged_section, provenance_section
from warehouse.report.view import View, make_view
from warehouse.snapshot import Manifest

SECTIONS: tuple[tuple[str, str, Callable[[View], Markup | None]], ...] = (
    ("ar", "AR baseline", baseline_section),
    ("speed", "Speed", speed_section),
    ("acceptance", "Acceptance", acceptance_section),
    ("accuracy", "Accuracy", accuracy_section),
    ("parity", "Parity", parity_section),
    ("latency", "Latency", latency_section),
    ("flagged", "Rejected and suspect", flagged_section),
    ("cost", "What it cost", cost_section),
    ("attempts", "Attempts", attempts_section),
    ("provenance", "Provenance", provenance_section),
)
"""Anchor, name in the contents, and what makes the section; none where it would have nothing to say."""

NO_LOADING = "default-src 'none'; style-src 'unsafe-inline'"
"""Content security policy: the page loads nothing and runs nothing, whatever text got into it."""


def render_report(tables: Mapping[str, pl.DataFrame], manifest: Manifest) -> str:
    """The report as one self-contained HTML page.

    Args:
        tables: `results_consolidated`, `pairs` and `attempts` of one snapshot.
        manifest: that snapshot's.
    """
    view = make_view(tables, manifest)
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=NO_LOADING),
        tag("title", "specsweep report"),
        tag("style", STYLE),
    )
    made = [(anchor, name, make(view)) for anchor, name, make in SECTIONS]
    contents = [(anchor, name) for anchor, name, content in made if content is not None]
    main = tag("main", *(content for _, _, content in made))
    body = tag("body", _header(view, contents), main, _footer(view))
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


def _header(view: View, sections: Sequence[tuple[str, str]]) -> Markup:
    first, *others = answers(view)
    warning = caveat(view)
    small = tag("small", first.about) if first.about else None
    more = [
        join([tag("h3", f"{answer.about}: {answer.verdict}"), tag("p", answer.evidence, class_="evidence")])
        for answer in others
    ]
    contents = tag("nav", *(tag("a", name, href=f"#{anchor}") for anchor, name in sections), aria_label="Contents")
    return tag(
        "header",
        tag("p", tag("b", "specsweep"), f" · {_stamp(view)}", class_="brand"),
        tag("h1", small, first.verdict),
        tag("p", first.evidence, class_="evidence"),
        *more,
        tag("p", warning, class_="caveat") if warning else None,
        contents,
    )


def _stamp(view: View) -> str:
    manifest = view.manifest
    runs = manifest.run_ids[0] if len(manifest.run_ids) == 1 else plural(len(manifest.run_ids), "run")
    return f"{runs} · snapshot {manifest.number}, {moment(manifest.built_at)}"


def _footer(view: View) -> Markup:
    manifest = view.manifest
    older = f" {plural(view.older_rows, 'row')} of earlier runs of the same cells: in the dataset only."
    rows = plural(manifest.file("results_consolidated.parquet").rows, "row")
    source = f"Made from snapshot {manifest.version} (schema {manifest.schema_version}, {rows}) and nothing else."
    one_line = 'polars.read_parquet("results_consolidated.parquet")'
    return tag(
        "footer",
        tag("p", source, older if view.older_rows else None),
        tag("p", "The dataset opens with one line: ", tag("code", one_line), "."),
        tag("p", "Every column is explained in ", tag("code", "DATA_DICTIONARY.md"), "."),
    )
