"""The page's section about memory and energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

from configs.steps.load import category_of
from warehouse.report.display.curves import IN_FLIGHT, against_load, lines_of
from warehouse.report.display.figures import MINUS, NOTHING, TIMES, Row, figure, rate, significant, technique_label
from warehouse.report.display.markup import FEWEST_BARS, Child, Markup, Section, apart, plot, plots_of, section, tag
from warehouse.report.display.plots import cell_bars
from warehouse.report.display.tables import CONDITION, Heading, naming, table, verdict_mark, without_empty
from warehouse.report.display.view import LOAD_STEP, MEMORY_STEP, View, ar_first, bench, benches_of, grouped

GIB, KIB = 1024**3, 1024

LEAD = (
    "Weights, cache and CUDA graphs are what the engine's log says, of one card; peaks are the driver's, over one "
    "request that fills the context. The cache is counted in tokens of requests of full length, and holds for those "
    "only: layers with a window keep their part of a request however short it is, so how many shorter ones fit isn't "
    "said. A draft pays in KV tokens, for its weights and its own layers; that is told against AR under the same "
    "serving arguments, on the same machine where the cell brought its control along. The host's peak adds up the "
    "engine's processes, shared pages in each."
)

ENERGY_LEAD = (
    "Energy per token is that of all cards over each timed window, by their own counter, divided by the tokens that "
    "were written; the rate beside it is of the same seconds, ramp and tail included. Processor, fans and power supply "
    "of the host are not in it. A card at its power limit (sw_power_cap) runs as it is meant to; one that protects "
    "itself against heat makes a row suspect."
)

NO_ENERGY = "No card told its power here, so nothing is known of energy per token."


def memory_section(view: View) -> Markup | None:
    """What a cell takes, how many requests fit, and what a token costs in energy."""
    measured = _in_order([row for row in view.of(step=MEMORY_STEP) if row.get("condition") is not None])
    timed = [row for row in view.rows if row.get("energy_j_per_token") is not None]
    known = _in_order([row for row in timed if row["step"] != LOAD_STEP or category_of(row["condition"]) is None])
    if not measured and not known:
        return None
    content: list[Child] = []
    if measured:
        content.append(table("Memory of each cell", without_empty(_memory_columns(view), measured), measured))
    if known:
        drawings = [drawing for each in benches_of(known, by_precision=False) for drawing in _drawings(each)]
        columns = without_empty(_energy_columns(view), known)
        content += [tag("p", ENERGY_LEAD), plots_of(drawings), table("Energy of each load", columns, known)]
    else:
        content.append(tag("p", NO_ENERGY))
    return section("memory", "Memory and energy", LEAD, *content)


def _memory_columns(view: View) -> list[Heading]:
    return [
        *naming(view.rows),
        Heading("weights, GiB", _amount("weights_bytes", GIB)),
        Heading("KV cache, GiB", _amount("kv_cache_bytes", GIB)),
        Heading("KV tokens", lambda row: figure(row["kv_tokens"], 0)),
        Heading("KiB a token", _amount("kv_bytes_per_token", KIB)),
        Heading("requests of full length", lambda row: figure(full_length(row), 1)),
        Heading("KV tokens against AR", _price),
        Heading("CUDA graphs, GiB", _amount("graph_bytes", GIB)),
        Heading("peak of a card, GiB", _amount("gpu_memory_peak_bytes", GIB)),
        Heading("of it the engine's", _amount("engine_memory_peak_bytes", GIB)),
        Heading("peak of the host, GiB", _amount("host_peak_bytes", GIB)),
        Heading("verdict", verdict_mark, ""),
    ]


def full_length(row: Row) -> float | None:
    """Requests of the cell's whole context that the cache holds, as the engine itself counts them."""
    return None if row["kv_tokens"] is None else row["kv_tokens"] / (row["context_tokens"] + row["output_tokens"])


def _price(row: Row) -> str:
    """What the draft costs: `-12 345 (-6.7 %)`."""
    tokens, ar = row["kv_tokens"], row["baseline_kv_tokens"]
    if tokens is None or not ar:
        return NOTHING
    sign = "" if tokens == ar else "+" if tokens > ar else MINUS
    return f"{sign}{figure(abs(tokens - ar), 0)} ({sign}{abs(tokens / ar - 1):.1%})"


def _amount(column: str, unit: int) -> Callable[[Row], str]:
    return lambda row: figure(None if row[column] is None else row[column] / unit)


def _energy_columns(view: View) -> list[Heading]:
    return [
        *naming(view.rows),
        CONDITION,
        Heading("tok/s, ramp and tail too", lambda row: rate(_whole_tok_s(row))),
        Heading("W", lambda row: figure(row["power_w"], 0)),
        Heading("J per token", lambda row: significant(row["energy_j_per_token"])),
        Heading("tok/s per W", lambda row: significant(1 / row["energy_j_per_token"])),
        Heading(f"J per token, {TIMES} AR", lambda row: figure(_against_ar(row))),
        Heading("clock held down by", lambda row: ", ".join(row["throttle_reasons"] or ()) or NOTHING, "wrap"),
        Heading("verdict", verdict_mark, ""),
    ]


def _whole_tok_s(row: Row) -> float | None:
    """Tokens per second of the windows that the power is of; the headline rate leaves out ramp and tail."""
    return None if row["power_w"] is None else row["power_w"] / row["energy_j_per_token"]


def _against_ar(row: Row) -> float | None:
    """Its energy per token over that of the AR that its speedup is over; None: it has none, or is not ok."""
    ar_j = row["baseline_energy_j_per_token"]
    return None if ar_j is None or row["verdict"] != "ok" else float(row["energy_j_per_token"] / ar_j)


def _drawings(rows: Sequence[Row]) -> list[Markup]:
    """Of one bench: against load where a prompt suite was under several, bars under every other condition."""
    trusted = [row for row in rows if row["verdict"] != "rejected"]
    note = f"{rows[0]['model']}, {rows[0]['engine']} on {rows[0]['gpu']}; lower is better."
    made = []
    suites = [row for row in trusted if row["step"] == LOAD_STEP]
    if lines := lines_of(suites, itemgetter("concurrency"), itemgetter("energy_j_per_token")):
        drawing = against_load("Energy per token against load", "joules per token", lines, IN_FLIGHT)
        made.append(plot("Energy per token against load", note, drawing))
    others = [row for row in trusted if row["step"] != LOAD_STEP]
    for (_, condition, mode), bars in grouped(others, lambda row: (row["step"], row["condition"], row["mode"])).items():
        name = condition if mode == "fixed" else f"{condition} ({mode})"
        if len(bars) >= FEWEST_BARS:
            said = note + apart(bars, f"{TIMES} AR")
            made.append(plot(f"Energy per token, {name}", said, energy_bars(bars)))
    return made


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """By bench, AR first, then by name and load."""

    def place(row: Row) -> tuple[object, ...]:
        return *bench(row), row["run_id"], *ar_first(row), row["concurrency"] or 0, row["condition"] or ""

    return sorted(rows, key=place)


def energy_bars(rows: Sequence[Row]) -> Markup:
    """Joules per token of several cells; shorter is better."""
    said = "; ".join(f"{technique_label(row)} {significant(row['energy_j_per_token'])} J" for row in rows)
    return cell_bars(rows, "energy_j_per_token", significant, "Energy per token", said, right=44)


SECTIONS = (Section("memory", "Memory and energy", memory_section, 65),)
