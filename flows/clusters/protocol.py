"""What the flow asks of a place to run: where next, launch, look, take down.

A `Site` knows what can be rented and remembers where it failed; a `Cluster` is one rented place that runs one cell's
node runner. `local` is this machine, `skypilot` is whatever SkyPilot reaches. A cluster's name follows from the store's
id, run and cell. So a flow that starts again finds what an earlier one rented, and the reaper knows who owns a cluster.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

from configs.errors import SpecsweepError
from warehouse.ledger.outcomes import Ended, ended_with
from warehouse.ledger.placement import MachineEnd, Offer
from warehouse.ledger.store.identity import digits


class CellJob(NamedTuple):
    """What a node is given about one cell of one run; the rest is in the store. `leg` None: all of it."""

    store_url: str
    run_id: str
    cell_key: str
    leg: int | None = None


class LaunchFailed(SpecsweepError):
    """A cluster could not be started; the text says why and what to do."""

    def __init__(self, text: str, how: Ended = Ended.LAUNCH_FAILED) -> None:
        super().__init__(text)
        self.how = how


class Ending(NamedTuple):
    """How a node runner, with which exit code (negative: killed by that signal), or the cluster under it, ended."""

    code: int | None
    how: Ended
    detail: str = ""

    @classmethod
    def of_runner(cls, code: int, detail: str = "") -> Self:
        """The ending that a runner's exit code stands for."""
        return cls(code, ended_with(code), detail)


class Launch(NamedTuple):
    """Rent `offer` now; None if the site has no offers to choose from (this machine)."""

    offer: Offer | None
    why: str = ""


class Wait(NamedTuple):
    """Nothing can be rented now; try again at `until_s` (the clock's seconds). `why` tells what was tried."""

    until_s: float
    why: str


Decision = Launch | Wait


class CellNeed(NamedTuple):
    """What a site must know about a cell to choose its next place.

    `losses`: lost placements of this cell, over all flows of the run. `remaining_s`: forecast seconds of the work left.
    `elapsed_s`: since the run first started.
    """

    cell_key: str
    losses: int
    remaining_s: float
    elapsed_s: float


class Cluster(Protocol):
    """A place that runs one cell's node runner."""

    def adopt(self) -> bool:
        """Whether an earlier flow's cluster of this name still runs the cell; then it is followed, not launched."""

    def launch(self, job: CellJob) -> float | None:
        """Start the node runner (else LaunchFailed); since when its cloud bills it, s since 1970; None: unknown."""

    def look(self, heard_s: float | None, *, insist: bool = False) -> Ending | None:
        """How it ended; None while it runs. Never blocks for long.

        `heard_s`: seconds since the runner's last heartbeat reached the store, None if there was none; a cluster may
        trust a fresh one and ask nobody else. `insist`: ask everybody who can be asked, however recently that was done.
        """

    def log_tail(self, lines: int) -> list[str]:
        """The last lines that the node runner printed; empty if they can't be had."""

    def is_there(self) -> bool:
        """Whether its machine is still rented, as the cloud says now."""

    def down(self) -> None:
        """Take everything down. May be called at any time, more than once."""

    def machine_end(self, since_s: float) -> MachineEnd | None:
        """What the cloud says about the end of the machine launched since then (seconds since 1970); None: nothing."""


class Site(Protocol):
    """Where clusters come from."""

    def choose(self, need: CellNeed) -> Decision:
        """Where to launch the cell's next cluster, or when to ask again."""

    def cluster(self, cell_key: str, offer: Offer | None) -> Cluster:
        """A cluster for one cell, not launched yet."""

    def ended(self, cell_key: str, offer: Offer, loss: Ended | None, detail: str = "") -> None:
        """Remember how a placement ended (`Ended.loss`; None: it was not the place's fault), and what was said."""


PREFIX = "specsweep-"  # beginning of every cluster's name
LABEL = "specsweep"  # label of everything rented: its value is the store's id
STORE_DIGITS, CELL_DIGITS = 7, 8  # of a name: 35 bits tell the stores of an account apart, 40 the cells of a store


def names_of_store(store_id: str) -> str:
    """How the names of all clusters of one store begin."""
    return f"{PREFIX}{store_id[:STORE_DIGITS]}-"


def cluster_name(store_id: str, run_id: str, cell_key: str) -> str:
    """`specsweep-<store>-<run and cell>`, 26 characters: GCP has room for 35, SkyPilot's user hash included."""
    return names_of_store(store_id) + digits(f"{run_id}/{cell_key}".encode(), CELL_DIGITS)
