"""In which engine starts a cell is measured: the unit of a speed is an engine start on a machine (columns: visit).

Starts differ by more than repeats within one do, and machines by more than starts. So a speedup rests on starts of both
arms on one machine, in an order in which a slow drift of that machine cancels:

    single       one start; for quick looks. No claim: what it shows holds within one start only.
    bracketed    control, cell, control: each cell brings its AR twin along. For cells that are rented one by one.
    mirrored     all cells forwards, then backwards, a fresh engine each. For one machine that runs all cells.
    balanced     mirrored, and AR once more in the middle: each technique has a start of AR on both sides of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from configs.cell import Cell
from configs.step import MeasuredStep

Design = Literal["single", "bracketed", "mirrored", "balanced"]

MIRRORED: tuple[Design, ...] = ("mirrored", "balanced")
"""Designs of one machine that runs all cells, forwards and back."""

FORWARDS, MIDDLE, BACK = 1, 2, 3
"""Legs of a mirrored design, in their order; only a balanced one has something in the middle."""

Drop = Literal["never", "after_first_visit"]
"""Which cells of a mirrored K sweep are left out on the way back: none, or those whose K is out by then."""

Role = Literal["cell", "control"]

SEPARATOR = "@"
"""Between a step's name and its start, in names of the ledger; no step's name has it."""


class Visit(NamedTuple):
    """One engine start in which speeds are measured: of the cell or of its control, and which one of that, from 1."""

    role: Role = "cell"
    number: int = 1

    @property
    def suffix(self) -> str:
        """What follows a step's name in the ledger: nothing for the cell's first start, else `@2`, `@control-1`."""
        if self.role == "control":
            return f"{SEPARATOR}control-{self.number}"
        return "" if self.number == 1 else f"{SEPARATOR}{self.number}"


FIRST = Visit()


class Measurement(NamedTuple):
    """A step in one start, what the ledger commits once; `passes` is 2 where a step and its control share the start."""

    spec: MeasuredStep
    visit: Visit = FIRST
    passes: int = 1

    @property
    def name(self) -> str:
        """Its name in the ledger: `throughput`, `throughput@2`, `throughput@control-1`."""
        return f"{self.spec.step}{self.visit.suffix}"

    @property
    def is_control(self) -> bool:
        """Whether the cell's AR twin is measured, not the cell."""
        return self.visit.role == "control"


class Start(NamedTuple):
    """One start of an engine: what it serves, and what is measured before it is stopped."""

    served: Cell
    measurements: tuple[Measurement, ...]
    leg: int = FORWARDS
    """A flow runs all cells of one leg before it begins the next one; unless mirrored, there is one leg."""


def without(starts: Sequence[Start], done: Collection[str]) -> list[Start]:
    """The starts that are left when measurements of these names are done, each with what is left of it."""
    left = [
        start._replace(measurements=tuple(each for each in start.measurements if each.name not in done))
        for start in starts
    ]
    return [start for start in left if start.measurements]


def unmeasured(measurements: Sequence[Measurement], usable: Mapping[str, bool]) -> list[Measurement]:
    """What is left of a cell; `usable`: names of what is committed, with whether any of its figures can be used."""
    useless = {each.spec.step for each in measurements if each.visit == FIRST and usable.get(each.name) is False}
    left = [each for each in measurements if each.name not in usable]
    return [each for each in left if not (each.is_control and each.spec.step in useless)]  # needs no control any more


def split_name(name: str) -> tuple[str, Visit]:
    """A step's name and its start, from a name of the ledger; raises `ValueError` where that names no start."""
    step, _, said = name.partition(SEPARATOR)
    if not said:
        return step, FIRST
    role, _, number = said.rpartition("-")
    if role not in ("", "control") or not number.isdecimal():
        raise ValueError(f"{name!r}: {said!r} is no visit; accepted: a number, or control- and a number")
    return step, Visit("control" if role else "cell", int(number))


def starts_of(cell: Cell, control: Cell | None, steps: Sequence[MeasuredStep], design: Design) -> tuple[Start, ...]:
    """The engine starts that measure a cell, in order; an AR cell is its own control.

    Bracketed, the speeds are done in three starts that follow one another closely, and what takes hours comes after
    them: a machine that is lost in those hours leaves a whole bracket behind.
    """
    twice = [step for step in steps if step.is_timed or step.is_own_control(cell)]
    if design == "single" or not twice:
        return (Start(cell, tuple(Measurement(step, passes=1 + step.is_own_control(cell)) for step in steps)),)
    if design in MIRRORED:
        has_middle = design == "balanced" and cell.technique.is_baseline
        middle = tuple(Measurement(step, Visit(number=2)) for step in twice if step.is_timed and has_middle)
        last = 3 if middle else 2
        back = tuple(Measurement(step, Visit(number=last if step.is_timed else 2)) for step in twice)
        starts = (Start(cell, tuple(map(Measurement, steps))), Start(cell, middle, MIDDLE), Start(cell, back, BACK))
        return tuple(start for start in starts if start.measurements)
    again = tuple(Measurement(step, Visit(number=2)) for step in twice)
    first = tuple(Measurement(step) for step in steps if step.is_gate or step in twice)
    rest = tuple(Measurement(step) for step in steps if not (step.is_gate or step in twice))
    if control is None:
        return Start(cell, first), Start(cell, (*again, *rest))
    before, after = (
        tuple(Measurement(step, Visit("control", number)) for step in twice if step.is_timed) for number in (1, 2)
    )
    bracket = (Start(control, before), Start(cell, first), Start(control, after))
    return (*bracket, Start(cell, rest)) if rest else bracket
