"""What was rented for a cell, when, at what price, and how it ended: for the bill, and to remember failed places.

.../cells/<cell_key>/placements/<n>.json        Asked for. Written before anything is rented, so that later
                                                processes know what may be running.
.../cells/<cell_key>/placements/<n>.up.json     The node runner was submitted.
.../cells/<cell_key>/placements/<n>.end.json    Down again. Create-only: the first record counts.

Which flow manages them is in `warehouse.ledger.claims`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from pydantic import field_validator

from configs.secrets import redacted
from warehouse.ledger.clock import iso_of
from warehouse.ledger.commits import Ledger, Record
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.store.protocol import numbers


class Offer(Record):
    """One thing that can be rented. Region and zone are None where a cloud has none (Slurm, Kubernetes)."""

    cloud: str
    region: str | None
    zone: str | None
    instance_type: str | None
    spot: bool
    price_usd_h: float | None
    price_source: str

    @property
    def where(self) -> str:
        """Short name for people, e.g. `aws/us-east-1a spot`."""
        return f"{self.cloud}/{self.zone or self.region or '-'} {'spot' if self.spot else 'on-demand'}"


class Placement(Record):
    """A cluster that was asked for. `number` counts the cell's placements, from 1; `flow` is the process that asked.

    `idle_s`, `unattended_s`: how long it lives on idle, and without a flow; None: it didn't say, and has no such timer.
    """

    cell_key: str
    number: int
    cluster: str
    offer: Offer
    asked_at: str
    flow: str
    idle_s: float | None = None
    unattended_s: float | None = None


class PlacementUp(Record):
    """The node runner was submitted. `rented_at`: when billing began, as the cloud says; None: it doesn't say."""

    at: str
    rented_at: str | None = None


class MachineEnd(NamedTuple):
    """What the cloud says of a machine's end, seconds since 1970; None: it doesn't say.

    Billed from `launched_at_s` to `at_s`; both the same: there was none. `interrupted`: the cloud took it back.
    """

    at_s: float | None = None
    interrupted: bool = False
    launched_at_s: float | None = None

    @property
    def is_of_none(self) -> bool:
        """Whether the cloud knows of no machine."""
        return self.at_s is not None and self.at_s == self.launched_at_s


class PlacementEnd(Record):
    """The cluster is down; `at`: when we learned of it. `outcome` is a word of records (`EndingRow.recorded`).

    `attempt`: epoch of the lease it belongs to; None: nothing was rented, or another runner has the cell. `machine_...`
    and `interrupted` are the cloud's words. `estimated`: nobody saw the end, and `at` is until when it was up at most.
    """

    at: str
    outcome: Ended
    detail: str = ""
    attempt: int | None = None
    machine_ended_at: str | None = None
    interrupted: bool = False
    machine_launched_at: str | None = None
    estimated: bool = False

    @field_validator("outcome")
    @classmethod
    def _is_a_word_of_records(cls, outcome: Ended) -> Ended:
        if outcome.row.recorded is not outcome:
            raise ValueError(
                f"a placement that ended as {outcome.value!r} is recorded as {outcome.row.recorded.value!r}"
            )
        return outcome


class PlacementStory(Record):
    """One placement from asking to down; `up` and `end` are None until they happen."""

    asked: Placement
    up: PlacementUp | None
    end: PlacementEnd | None


class Placements:
    """The placements of one cell of one run."""

    def __init__(self, ledger: Ledger, cell_key: str) -> None:
        self.store = ledger.store
        self.cell_key = cell_key
        self.root = ledger.cell_root(cell_key)
        self._ended: dict[int, PlacementStory] = {}

    def stories(self) -> list[PlacementStory]:
        """Every placement, oldest first."""
        return [self._story(number) for number in self._numbers()]

    def open(self) -> PlacementStory | None:
        """The newest placement if its end isn't recorded, else None."""
        numbers = self._numbers()
        newest = self._story(numbers[-1]) if numbers else None
        return newest if newest is not None and newest.end is None else None

    def ask(
        self,
        cluster: str,
        offer: Offer,
        flow: str,
        at: str,
        idle_s: float | None = None,
        unattended_s: float | None = None,
    ) -> Placement:
        """Record, under the next free number, that a cluster is about to be rented."""
        placement = Placement(
            cell_key=self.cell_key,
            number=max(self._numbers(), default=0) + 1,
            cluster=cluster,
            offer=offer,
            asked_at=at,
            flow=flow,
            idle_s=idle_s,
            unattended_s=unattended_s,
        )
        while not self.store.put_new(self._key(placement.number, ""), placement.model_dump_json(indent=1).encode()):
            placement = placement.model_copy(update={"number": placement.number + 1})
        return placement

    def up(self, number: int, at: str, rented_at_s: float | None = None) -> None:
        """Record that the node runner was submitted, and when the cloud began to bill; the first record counts."""
        rented_at = None if rented_at_s is None else iso_of(rented_at_s)
        self.store.put_new(self._key(number, ".up"), PlacementUp(at=at, rented_at=rented_at).model_dump_json().encode())

    def end(self, number: int, end: PlacementEnd, machine: MachineEnd | None = None) -> bool:
        """Record that it is down, with what the cloud says of its machine. False: its end was recorded before."""
        if machine is not None:
            ended_at, launched_at = (
                None if at_s is None else iso_of(at_s) for at_s in (machine.at_s, machine.launched_at_s)
            )
            said = {"machine_ended_at": ended_at, "machine_launched_at": launched_at}
            end = end.model_copy(update=said | {"interrupted": machine.interrupted})
        return self.store.put_new(self._key(number, ".end"), redacted(end.model_dump_json(indent=1)).encode())

    def _numbers(self) -> list[int]:
        """Of all placements, oldest first; a cell that tries zones without capacity in vain has hundreds."""
        return numbers(self.store.list(f"{self.root}/placements"), partial(self._key, word=""))

    def _story(self, number: int) -> PlacementStory:
        if number in self._ended:  # it never changes again
            return self._ended[number]
        asked = Placement.read(self.store, self._key(number, ""))
        assert asked is not None, "placements are never deleted"
        up = PlacementUp.read(self.store, self._key(number, ".up"))
        story = PlacementStory(asked=asked, up=up, end=PlacementEnd.read(self.store, self._key(number, ".end")))
        if story.end is not None:
            self._ended[number] = story
        return story

    def _key(self, number: int, word: str) -> str:
        return f"{self.root}/placements/{number:06d}{word}.json"
