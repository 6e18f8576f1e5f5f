"""How numbers and names are written for people, the same everywhere on the page."""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, log10
from typing import Any, NamedTuple

Row = Mapping[str, Any]

NOTHING, TIMES, MINUS = "\N{EN DASH}", "\N{MULTIPLICATION SIGN}", "\N{MINUS SIGN}"
"""Shown for a figure that doesn't exist, which isn't zero; behind a factor; as wide as a plus, as no hyphen is."""


def figure(value: float | None, digits: int = 2) -> str:
    """A number with this many decimals, thousands apart."""
    apart = "\N{NARROW NO-BREAK SPACE}"
    return NOTHING if value is None else f"{value:,.{digits}f}".replace(",", apart).replace("-", MINUS)


def significant(value: float | None, digits: int = 3) -> str:
    """A number with so many digits that say something, however small it is; whole ones have all of theirs."""
    if not value:
        return figure(value, 0)
    return figure(value, max(0, digits - 1 - floor(log10(abs(value)))))


def signed(value: float | None, digits: int = 3) -> str:
    """A difference, always with its sign."""
    return NOTHING if value is None else f"{value:+.{digits}f}".replace("-", MINUS)


def span(low: float | None, high: float | None, digits: int = 2) -> str:
    """An interval, `1.20 to 1.35`; `NOTHING` if an end is missing."""
    return NOTHING if low is None or high is None else f"{figure(low, digits)} to {figure(high, digits)}"


def rate(tok_s: float | None) -> str:
    """Tokens per second; below 100 with one decimal."""
    return figure(tok_s, 0 if tok_s is None or tok_s >= 100 else 1)


def usd(value: float | None) -> str:
    """Dollars; below one with three decimals, because cents are too coarse for a step."""
    return NOTHING if value is None else f"${value:,.3f}" if 0 < value < 1 else f"${value:,.2f}"


class Mark(NamedTuple):
    """What a figure is not: a sign where there is no room for words, and the words."""

    sign: str
    words: str


REPLAY = "replayed:"
"""How an `acceptance_source` begins that was not measured; its source follows."""

REPLAY_NUMBER = "replay_number"
"""Of the page's rows, in addition to their own columns: which of the page's sources it was, from 1."""

MARKED = ("weights", "acceptance_source", "denoising_steps", "canvas_length")
"""The columns that say so or name the cell, and that comparisons lack; `made_up`, which tells of drawn experts, they
have."""


def marks(row: Row) -> list[Mark]:
    """The marks that the name must have wherever one of its figures is shown; none: the model was really run."""
    is_dummy, source = row.get("weights") == "dummy", row.get("acceptance_source") or ""
    number = row.get(REPLAY_NUMBER) or 1
    which = str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")) if number > 1 else ""
    is_denoised = is_dummy and row.get("denoising_steps") is not None
    replayed = Mark(f"\N{DOUBLE DAGGER}{which}", f"acceptance replayed from {source.removeprefix(REPLAY)}")
    found = {
        Mark("\N{DAGGER}", "dummy weights"): is_dummy,
        replayed: source.startswith(REPLAY),
        Mark("\N{SECTION SIGN}", "denoising steps replayed"): is_denoised,
        Mark("\N{PILCROW SIGN}", "experts drawn"): "routing=random" in (row.get("made_up") or ""),
    }
    return [mark for mark, applies in found.items() if applies]


def ar_model(row: Row) -> str:
    """The model whose AR a row is compared with; an attempt knows only its own."""
    return str(row.get("compared_as") or row["model"])


def ar_name(row: Row) -> str:
    """`AR`; where the row is compared with another model's AR, with its name: `AR of gemma-4-26b-a4b`."""
    return "AR" if ar_model(row) == row["model"] else f"AR of {ar_model(row)}"


def technique_name(row: Row) -> str:
    """Technique with what a row asked of it, e.g. `mtp K=4`, `diffusion 16 steps`, `diffusion 16 steps canvas 128`."""
    said = {"k": "K={}", "denoising_steps": "{} steps", "canvas_length": "canvas {}"}
    asked = [form.format(row[name]) for name, form in said.items() if row.get(name) is not None]
    return " ".join(["AR" if row["technique"] == "ar" else row["technique"], *asked])


def technique_label(row: Row) -> str:
    """Technique with its K and what its figures are not, e.g. `mtp K=4 (dummy weights)`."""
    said = ", ".join(mark.words for mark in marks(row))
    return f"{technique_name(row)} ({said})" if said else technique_name(row)


def technique_sign(row: Row) -> str:
    """The same for a drawing, whose legend explains the signs: `mtp K=4\N{DAGGER}`."""
    return technique_name(row) + "".join(mark.sign for mark in marks(row))


def lengths(row: Row) -> str:
    """`64 tokens in, 512 out`, as they were asked for; empty where the load doesn't say both."""
    asked = row["context_tokens"], row["output_tokens"]
    return "" if None in asked else f"{asked[0]} tokens in, {asked[1]} out"


def moment(iso: str | None) -> str:
    """A moment to the minute, UTC."""
    return NOTHING if iso is None else f"{iso[:16].replace('T', ' ')} UTC"


def plural(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
