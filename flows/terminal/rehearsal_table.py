"""What a rehearsal found, as a table of 80 columns, as one line of a plan, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from configs.vllm_arguments import PINNED
from tasks.rehearsal.facts import GIB, Facts
from tasks.rehearsal.rehearse import Rehearsed
from warehouse.report.display.figures import plural

LEGEND = (
    "seqs: requests at once that vLLM allows. weights: GiB on a card, the draft's included, and how many of the layers "
    "that compute are quantized. kv: GiB of one request of the full length. fits: such requests beside the weights, "
    "before activations and CUDA graphs take theirs."
)
COLUMNS = ("cell", "cards", "seqs", "weights", "quantized", "kv", "fits", "")


def render(found: Sequence[Rehearsed]) -> Group:
    """The table, what its columns mean, and a line for each thing that was found."""
    table = Table(*COLUMNS, box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for column in table.columns[1:-1]:
        column.justify, column.no_wrap = "right", True
    for each in found:
        table.add_row(escape(each.part.label), *_figures(each.facts), _verdict(each))
    said = [Text(f"refused  {line}", style="red") for each in found for line in each.refusals]
    said += [Text(f"remark   {line}") for each in found for line in each.remarks]
    return Group(table, Text(f"vLLM {PINNED}. {LEGEND}", style="dim"), *said)


def _verdict(each: Rehearsed) -> str:
    if each.facts is None or each.facts.stage != "done":
        return "[red]refused[/]" if each.refusals else "[yellow]partly[/]"
    return "[red]refused[/]" if each.refusals else "[yellow]remark[/]" if each.remarks else "[green]ok[/]"


def _figures(facts: Facts | None) -> tuple[str, ...]:
    if facts is None:
        return ("",) * (len(COLUMNS) - 2)
    many = sum(layer.n for layer in facts.computing)
    quantized = sum(layer.n for layer in facts.computing if layer.quantized)
    weights = None if facts.weights_bytes is None else (facts.weights_bytes + facts.draft_bytes) / GIB
    kv = None if facts.kv_bytes_per_request is None else facts.kv_bytes_per_request / GIB
    return (
        "" if facts.cards is None else str(facts.cards),
        "" if facts.max_num_seqs is None else str(facts.max_num_seqs),
        "" if weights is None else f"{weights:.1f}",
        f"{quantized}/{many}" if many else "",
        "" if kv is None else f"{kv:.1f}",
        "" if facts.requests is None else f"{facts.requests:.1f}",
    )


def summary(found: Sequence[Rehearsed], sweep: str) -> str:
    """One line for a plan: what is remembered of its cells, and how to find out the rest."""
    asked = [each for each in found if each.part.is_known]
    lacking = sum(each.facts is None for each in asked)
    refusals = [line for each in found for line in each.refusals]
    if refusals:
        return f"rehearsal: {len(refusals)} would fail at start: {'; '.join(refusals)}"
    if lacking:
        return f"rehearsal: {lacking} of {plural(len(found), 'command')} not rehearsed yet: bin/sweep rehearse {sweep}"
    whole = sum(each.would_start for each in asked)
    parts = [f"vLLM {PINNED} would start {whole} of {plural(len(found), 'command')}"] * bool(found)
    parts += [f"{len(found) - whole} could be checked in part"] * (whole < len(found))
    remarks = sum(len(each.remarks) for each in found)
    parts += [f"remarks: {remarks}, shown by bin/sweep rehearse {sweep}"] * bool(remarks)
    return f"rehearsal: {'; '.join(parts) or 'nothing of vLLM'}"


def document(found: Sequence[Rehearsed]) -> dict[str, Any]:
    """What `--json` promises of a rehearsal."""
    cells = [
        {
            "label": each.part.label,
            "cell_key": each.part.cell.cell_key,
            "refusals": each.refusals,
            "remarks": each.remarks,
            "facts": None if each.facts is None else each.facts.model_dump(mode="json"),
        }
        for each in found
    ]
    return {"rehearsal": cells}
