"""Which flow manages a cell's clusters: claims, taken as leases are, and the heartbeats of the flows that hold them.

    cells/<cell_key>/flows/<epoch>.json    Created only if absent. The highest epoch manages the cell.
    cells/<cell_key>/flow.json             A flow has released the cell. (Earlier versions: its heartbeat, too.)
    flows/<pulse>.json                     A flow's heartbeat, for all the cells that it claimed by this name.

Two flows that begin at the same moment create the same epoch, and one of them learns so from the write itself.

A machine whose end was not seen counts as ended at the last sign of it or of its flow, plus its idle time: it removes
itself after that without a runner (the task's `autostop`), and without a flow after the time of its own timer
(`cloud.unattended_h`). A flow that lives closes its records, so an open one cost nothing beyond that moment, however
late it is read, and an unattended weekend doesn't use up a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from warehouse.ledger.clock import MINUTE_S, moment_s
from warehouse.ledger.commits import Ledger, Record
from warehouse.ledger.lease import Leases
from warehouse.ledger.owner import lives_here
from warehouse.ledger.placement import PlacementStory
from warehouse.ledger.store import StoreError
from warehouse.ledger.store.protocol import numbers

FLOW_DEADLINE_S = 120.0  # silence after which a flow no longer counts as managing its clusters; it beats every 30 s


class FlowClaim(Record):
    """The right to manage a cell's clusters (`owner`: `owner.owner_name`). `epoch` counts flows, from 1.

    `heard_at`: last sign of the flow before it, if any. `pulse`: the heartbeat that counts for the cell from then on.
    """

    cell_key: str
    epoch: int
    owner: str
    granted_at: str
    heard_at: str | None = None
    pulse: str | None = None


class FlowHeartbeat(Record):
    """Who manages a cell now; `released`: no longer. `epoch` 0: of an earlier version, without claims."""

    owner: str
    at: str
    released: bool = False
    epoch: int = 0


class FlowPulse(Record):
    """A flow lives, and so manages the cells whose claims name this: one request, however many they are."""

    at: str


class Span(NamedTuple):
    """A time in which a flow managed a cell, ISO 8601: from its claim (None: it took none) to its last sign."""

    began_at: str | None
    heard_at: str


class ManagedElsewhere(StoreError):
    """Another flow manages the cell; `owner` is its name."""

    def __init__(self, cell_key: str, owner: str) -> None:
        """Say which cell, and whose it is."""
        super().__init__(f"cell {cell_key} is managed by the flow {owner}: wait for it, or for its silence")
        self.owner = owner


class _Word(NamedTuple):
    """The latest sign of a manager, and the keys of which the youngest's age is its silence."""

    epoch: int
    owner: str
    at: str
    released: bool
    keys: tuple[str, ...]
    pulse: str | None = None


def _is_by(said: FlowClaim | _Word, owner: str, pulse: str | None) -> bool:
    return pulse is not None and (said.owner, said.pulse) == (owner, pulse)


def beat(ledger: Ledger, pulse: str) -> None:
    """Store the heartbeat of a flow, for all cells that it claimed by this name."""
    said = FlowPulse(at=ledger.clock.now_iso())
    ledger.store.put(f"{ledger.root}/flows/{pulse}.json", said.model_dump_json().encode())


class Claims:
    """The claims on one cell of one run."""

    def __init__(self, ledger: Ledger, cell_key: str) -> None:
        self.store, self.clock = ledger.store, ledger.clock
        self.cell_key, self._run_root = cell_key, ledger.root
        self.root = ledger.cell_root(cell_key)

    def take(self, owner: str, pulse: str | None = None) -> FlowClaim:
        """Become the cell's manager; `pulse` names the heartbeat by which it is heard of from then on.

        A claim by the same pulse is no other flow's: the store took it, and its answer was lost. ManagedElsewhere:
        another flow is, or was faster.
        """
        last = self._last_word()
        if last is not None and not _is_by(last, owner, pulse) and self._holds(last):
            raise ManagedElsewhere(self.cell_key, last.owner)
        return self._take((last.epoch if last else 0) + 1, owner, last.at if last else None, pulse)

    def renew(self, claim: FlowClaim, heard_at: str) -> FlowClaim:
        """Take the cell again for a flow that gave no sign since then. ManagedElsewhere: another one came meanwhile."""
        return self._take(claim.epoch + 1, claim.owner, heard_at, claim.pulse)

    def _take(self, epoch: int, owner: str, heard_at: str | None, pulse: str | None) -> FlowClaim:
        claim = FlowClaim(
            cell_key=self.cell_key,
            epoch=epoch,
            owner=owner,
            granted_at=self.clock.now_iso(),
            heard_at=heard_at,
            pulse=pulse,
        )
        if not self.store.put_new(self._key(claim.epoch), claim.model_dump_json().encode()):
            faster = self._claim(claim.epoch)
            if faster is not None and _is_by(faster, owner, pulse):
                return faster
            raise ManagedElsewhere(self.cell_key, faster.owner if faster else "that was faster just now")
        return claim

    def release(self, claim: FlowClaim) -> None:
        """Record that the claim's flow has released the cell."""
        said = FlowHeartbeat(owner=claim.owner, at=self.clock.now_iso(), released=True, epoch=claim.epoch)
        self.store.put(f"{self.root}/flow.json", said.model_dump_json().encode())

    def manager(self) -> str | None:
        """The flow that manages the cell: heard from in time, not released, not known to be dead. None: no flow."""
        last = self._last_word()
        return last.owner if last is not None and self._holds(last) else None

    def holder(self) -> FlowClaim | None:
        """The claim by which a flow manages the cell (see `manager`); None: no flow does."""
        last = self._last_word()
        return self._claim(last.epoch) if last is not None and self._holds(last) else None

    def is_managed_by(self, owner: str) -> bool:
        """Whether this process (`owner_name`) was the last to take the cell, and has not released it."""
        last = self._last_word()
        return last is not None and last.owner == owner and not last.released

    def age_s(self) -> float | None:
        """Seconds since its manager was heard of, absences of the store included; None: never, or released."""
        last = self._last_word()
        return None if last is None or last.released else self._youngest(last, self.store.age_s)

    def spans(self) -> list[Span]:
        """When flows managed the cell, oldest first."""
        last = self._last_word()
        if last is None:
            return []
        claims = [claim for epoch in range(1, last.epoch + 1) if (claim := self._claim(epoch)) is not None]
        if not claims:
            return [Span(None, last.at)]
        before = [] if claims[0].heard_at is None else [Span(None, claims[0].heard_at)]
        heard = [claim.heard_at or claim.granted_at for claim in claims[1:]] + [last.at]
        return before + [Span(claim.granted_at, said) for claim, said in zip(claims, heard, strict=True)]

    def _holds(self, word: _Word) -> bool:
        if word.released or lives_here(word.owner) is False:
            return False
        silence_s = self._youngest(word, self.store.silence_s)
        return silence_s is not None and silence_s < FLOW_DEADLINE_S

    def _youngest(self, word: _Word, age_of: Callable[[str], float | None]) -> float | None:
        ages_s = (age_of(key) for key in word.keys)
        return min((each for each in ages_s if each is not None), default=None)

    def _last_word(self) -> _Word | None:
        """The newest claim, with its flow's heartbeat, or its release; None: no flow ever managed the cell."""
        keys = self.store.list(f"{self.root}/flows")
        said = FlowHeartbeat.read(self.store, f"{self.root}/flow.json")
        epoch = max(numbers(keys, self._key), default=0)
        if said is not None and said.epoch >= epoch:
            return _Word(said.epoch, said.owner, said.at, said.released, (f"{self.root}/flow.json",))
        claim = self._claim(epoch)
        return None if claim is None else self._heard(claim)

    def _heard(self, claim: FlowClaim) -> _Word:
        word = _Word(claim.epoch, claim.owner, claim.granted_at, False, (self._key(claim.epoch),), claim.pulse)
        key = f"{self._run_root}/flows/{claim.pulse}.json"
        pulse = None if claim.pulse is None else FlowPulse.read(self.store, key)
        return word if pulse is None else word._replace(at=max(word.at, pulse.at), keys=(*word.keys, key))

    def _claim(self, epoch: int) -> FlowClaim | None:
        return FlowClaim.read(self.store, self._key(epoch))

    def _key(self, epoch: int) -> str:
        return f"{self.root}/flows/{epoch:06d}.json"


IDLE_S = 10.0 * MINUTE_S
"""For placements that don't say how long their machine idles before it removes itself: the tasks of `sky/` say this."""


def estimated_end_s(ledger: Ledger, story: PlacementStory, next_asked_at: str | None = None) -> float:
    """When the machine of an open placement was gone at the latest, seconds since 1970; in use: the future.

    The cell's next machine, asked for at `next_asked_at`, has the same name.
    """
    cell_key = story.asked.cell_key
    beat = Leases(ledger, cell_key).heartbeat()
    runner = [] if beat is None else [beat.at]
    return end_after(story, runner, Claims(ledger, cell_key).spans(), next_asked_at)


def end_after(
    story: PlacementStory, runner: Iterable[str], flows: Iterable[Span], next_asked_at: str | None = None
) -> float:
    """The same, from the last signs of the cell's runners (ISO 8601) and flows."""
    asked = story.asked
    asked_s = moment_s(asked.asked_at)
    idle_s = IDLE_S if asked.idle_s is None else asked.idle_s
    latest_s = float("inf") if next_asked_at is None else moment_s(next_asked_at)
    words = [asked_s, *(moment_s(each) for each in runner), *([] if story.up is None else [moment_s(story.up.at)])]
    heard = [each for each in words if asked_s <= each <= latest_s]
    heard_s, has_autostop = max(heard, default=asked_s), len(heard) > 1
    attended_s = asked_s
    for flow in flows:  # one that came after the machine's idle time found nothing to keep up
        began_s = asked_s if flow.began_at is None else moment_s(flow.began_at)
        if began_s <= heard_s + idle_s:
            attended_s = max(attended_s, moment_s(flow.heard_at))
            heard_s = max(heard_s, attended_s)
    alone_s = float("inf") if asked.unattended_s is None else asked.unattended_s
    # autostop is set once a machine is up; what its flow left before that has only the timer of its first boot
    idled_s = heard_s + idle_s if has_autostop or asked.unattended_s is None else float("inf")
    return min(idled_s, attended_s + alone_s, latest_s)
