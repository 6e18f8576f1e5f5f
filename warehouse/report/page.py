"""From the current snapshot to the page: answer first, evidence after, nothing hidden, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from warehouse.dataset.snapshot import Manifest, current, read_table
from warehouse.dataset.tables import PRODUCT_TABLES
from warehouse.ledger.store import Store, StoreError
from warehouse.report import trust_sections as trust
from warehouse.report.accuracy_section import accuracy_section
from warehouse.report.answer import answers, caveats
from warehouse.report.beside import beside_section
from warehouse.report.cost_section import cost_section
from warehouse.report.display.figures import moment, plural
from warehouse.report.display.markup import Markup, Section, tag
from warehouse.report.display.view import View, make_view
from warehouse.report.placebo_section import placebo_section
from warehouse.report.published.read import published_rows
from warehouse.report.steps import step_sections
from warehouse.report.style import STYLE
from warehouse.report.which_k import which_k_section

OWN_SECTIONS = (
    Section(trust.UNMEASURED, trust.UNMEASURED_TITLE, trust.unmeasured_section, 22),
    Section("placebo", "A/A check", placebo_section, 25),
    Section("which-k", "Which K", which_k_section, 35),
    Section("beside", "Published beside measured", beside_section, 45),
    Section("accuracy", "Accuracy", accuracy_section, 40),
    Section("flagged", "Rejected and suspect", trust.flagged_section, 100),
    Section("cost", "What it cost", cost_section, 110),
    Section("attempts", "Attempts", trust.attempts_section, 120),
    Section("provenance", "Provenance", trust.provenance_section, 130),
)
"""What the page says about all steps; each step's file adds its own sections."""

NO_LOADING = "default-src 'none'; style-src 'unsafe-inline'"
"""Content security policy: the page loads nothing and runs nothing, whatever text got into it."""


def render_report(tables: Mapping[str, pl.DataFrame], manifest: Manifest) -> str:
    """The report of one snapshot's product tables, as one self-contained HTML page."""
    view = replace(make_view(tables), published=published_rows())
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=NO_LOADING),
        tag("title", "specsweep report"),
        tag("style", STYLE),
    )
    ordered = sorted([*step_sections(), *OWN_SECTIONS], key=lambda each: each.place)
    made = [(each, content) for each in ordered if (content := each.make(view)) is not None]
    main = tag("main", *(content for _, content in made))
    body = tag("body", _header(view, manifest, [each for each, _ in made]), main, _footer(view, manifest))
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


def _header(view: View, manifest: Manifest, sections: Sequence[Section]) -> Markup:
    first, *others = answers(view)
    small = tag("small", first.about) if first.about else None
    more: list[Markup] = []
    for answer in others:
        more += [tag("h3", f"{answer.about}: {answer.verdict}"), tag("p", answer.evidence, class_="evidence")]
    contents = tag("nav", *(tag("a", each.name, href=f"#{each.anchor}") for each in sections), aria_label="Contents")
    return tag(
        "header",
        tag("p", tag("b", "specsweep"), f" · {_stamp(manifest)}", class_="brand"),
        tag("h1", small, first.verdict),
        tag("p", first.evidence, class_="evidence"),
        *more,
        *(tag("p", warning, class_="caveat") for warning in caveats(view)),
        contents,
    )


def _stamp(manifest: Manifest) -> str:
    runs = manifest.run_ids[0] if len(manifest.run_ids) == 1 else plural(len(manifest.run_ids), "run")
    return f"{runs} · snapshot {manifest.number}, {moment(manifest.built_at)}"


def _footer(view: View, manifest: Manifest) -> Markup:
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


CONVENIENCE_KEY = "report.html"
"""The stable name of the newest report."""


def current_tables(store: Store) -> tuple[Manifest, dict[str, pl.DataFrame]]:
    """The current snapshot, and the tables that it has; raises `StoreError` where nothing was published yet."""
    manifest = current(store)
    if manifest is None:
        raise StoreError(f"{store.url} has no snapshot yet: publish before writing a report")
    return manifest, {name: read_table(store, manifest, name) for name in PRODUCT_TABLES}


def write_report(store: Store) -> str:
    """Render the current snapshot's report, and return where it can be opened; raises `StoreError`."""
    manifest, tables = current_tables(store)
    page = render_report(tables, manifest).encode()
    store.put_new(f"reports/{manifest.version}.html", page)
    store.put(CONVENIENCE_KEY, page)
    return store.uri(CONVENIENCE_KEY)
