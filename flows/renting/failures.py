"""Where renting failed, how, and when: the memory that all cells of a run share.

Pure: what happened goes in, a new memory comes out. After a failure a place is avoided while another can be had, for
longer with each failure in a row. For a shorter while it rests: it is not asked at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from warehouse.outcomes import Ended
from warehouse.placement import Offer

AVOID_MOST_S = 4 * 3600.0
"""The longest that a place is avoided, however often it failed: spot capacity follows the time of day."""

PROVEN_S = 1800.0
"""A node that lived this long shows that its place works; a failure after that starts the count anew."""

FORGOTTEN_S = 2 * AVOID_MOST_S
"""A failure this old says nothing any more; the next one starts the count anew."""


class Place(NamedTuple):
    """What is remembered: an instance type in a zone, spot and on-demand apart."""

    cloud: str
    region: str | None
    zone: str | None
    instance_type: str | None
    spot: bool


class Event(NamedTuple):
    """A placement that ended; `loss` is None if its place is not to blame. `lived_s`: since it was asked for."""

    cell_key: str
    place: Place
    loss: Ended | None
    at_s: float
    lived_s: float


class Trouble(NamedTuple):
    """The last failure of a place, and how many there were in a row."""

    kind: Ended
    at_s: float
    in_a_row: int

    @property
    def avoid_s(self) -> float:
        """How long the place is avoided: twice as long with each failure in a row, up to `AVOID_MOST_S`."""
        return min(AVOID_MOST_S, self.kind.row.avoided_s * 2.0 ** min(self.in_a_row - 1, 16))

    @property
    def avoided_until_s(self) -> float:
        """From when on the place is as good as any other (seconds since 1970)."""
        return self.at_s + self.avoid_s


class Memory(NamedTuple):
    """Places in trouble, and the place that each cell lost last."""

    troubles: Mapping[Place, Trouble] = MappingProxyType({})
    lost_by: Mapping[str, Place] = MappingProxyType({})

    def kind_of(self, place: Place) -> Ended | None:
        """How a place failed last; None: it did not, or has been proven since."""
        trouble = self.troubles.get(place)
        return None if trouble is None else trouble.kind

    def is_clear(self, place: Place, now_s: float) -> bool:
        """Whether a place is not being avoided."""
        trouble = self.troubles.get(place)
        return trouble is None or now_s >= trouble.avoided_until_s


class Backoff(NamedTuple):
    """Bounds of the pauses when every place is avoided."""

    first_s: float = 30.0
    most_s: float = 600.0

    def rest_s(self, trouble: Trouble) -> float:
        """Seconds after a failure in which that place is not asked; with `JITTER`, at most `most_s`."""
        return min(self.most_s / (1 + JITTER), self.first_s * 2.0 ** min(trouble.in_a_row - 1, 16))

    def rested_s(self, trouble: Trouble) -> float:
        """From when on the place may be asked again, if there is no better one (seconds since 1970)."""
        return trouble.at_s + self.rest_s(trouble)


BACKOFF = Backoff()
"""Used outside rehearsals; at first, a catalogue of zones is asked through once in half a minute."""

JITTER = 0.5
"""Largest share of a rest that is added at random, so that a run's cells don't all come back in the same second."""


def place_of(offer: Offer) -> Place:
    """What is remembered of an offer: everything but its price."""
    return Place(offer.cloud, offer.region, offer.zone, offer.instance_type, offer.spot)


def remember(memory: Memory, event: Event) -> Memory:
    """The memory after a placement has ended.

    A failure counts as one more in a row if its machine was asked for after the failure before it. One that was asked
    for earlier (a wave of reclaims, several cells that asked the same zone at once) tells the same thing again. A
    placement that did its work, or lived long, ends the row.
    """
    troubles, lost_by = dict(memory.troubles), dict(memory.lost_by)
    known = troubles.get(event.place)
    asked_s = event.at_s - event.lived_s
    if event.loss is None:
        if known is not None and asked_s >= known.at_s:
            del troubles[event.place]
        return Memory(troubles, lost_by)
    lost_by[event.cell_key] = event.place
    new_row = known is None or event.lived_s >= PROVEN_S or event.at_s > known.at_s + FORGOTTEN_S
    in_a_row = 1 if known is None or new_row else known.in_a_row + (asked_s >= known.at_s)
    troubles[event.place] = Trouble(event.loss, event.at_s, in_a_row)
    return Memory(troubles, lost_by)
