"""The label that says from when on any store's reaper may take a cluster, renewed while its flow lives.

A reaper can't read the leases of other stores, so it has only this label to go by. However long a run takes, its label
stays ahead of the clock. Of a cluster whose flow is gone, or hangs over it, it runs out: then anybody may end the bill.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from configs.schema import Plan
from flows.clusters.answers import LOOK_S, answered
from flows.clusters.clouds import accounts
from flows.clusters.clouds.account import Account, CloudError, NotAsked
from flows.clusters.protocol import cluster_name
from flows.clusters.skypilot.task_file import EXPIRY_LABEL
from flows.telling import once_in_a_row
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store.identity import store_id

EXPIRES_AFTER_S = 24 * 3600.0  # how far ahead the label is set, at the launch and with each renewal
RENEW_EVERY_S = 3600.0  # pause between two renewals: a cloud may fail twenty of them in a row
LOOK_EVERY_S = 10.0  # between two looks at the clock, which goes on in sleep; far less than the reaper's second look


class ExpiryRenewer:
    """Sets the label of every machine of some clusters anew, by asking the clouds themselves.

    A renewal is for the clusters that were attended since the one before the last; the first two are for all.
    """

    def __init__(
        self,
        clusters: Collection[str],
        accounts: Sequence[Account],
        tell: Callable[[str], None],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._attended, self._before = set(clusters), set[str]()
        self._accounts, self._told, self._now_s = accounts, once_in_a_row(tell), now_s

    def attend(self, cluster: str) -> None:
        """Somebody follows the cluster now."""
        self._attended.add(cluster)

    def renew(self) -> None:
        """Renew the label of every machine that is there now and was attended."""
        attended, self._attended = self._attended, set()
        prefixes = tuple(f"{name}-" for name in attended | self._before)  # SkyPilot appends a hash of its user
        self._before = attended
        labels = {EXPIRY_LABEL: str(int(self._now_s() + EXPIRES_AFTER_S))}
        failed = [said for account in self._accounts if (said := self._renewed(account, prefixes, labels))]
        said = "; ".join(failed)
        after = f"{EXPIRES_AFTER_S / 3600:.0f} h after the last renewal"
        consequence = f"so any store's reaper may take machines of this run {after}"
        self._told(f"{EXPIRY_LABEL} can't be renewed, {consequence}: {said}" if said else "")

    def _renewed(self, account: Account, prefixes: tuple[str, ...], labels: dict[str, str]) -> str:
        """What one cloud failed with; empty if it did not, or if nothing can be rented there."""
        try:
            sighting = answered(account.look, LOOK_S)
            mine = [each for each in sighting.instances if each.cluster.startswith(prefixes)]
            answered(partial(account.label, mine, labels), LOOK_S)
        except NotAsked:
            return ""
        except CloudError as error:
            return str(error)
        except Exception as error:  # of a library: the next renewal may go through
            return f"{account.cloud}: {type(error).__name__}: {error}"
        return "; ".join(sighting.problems)

    def run(self, ended: threading.Event) -> None:
        """Renew now, and every hour until `ended` is set."""
        due_s = self._now_s()
        while True:
            if self._now_s() >= due_s:
                due_s = self._now_s() + RENEW_EVERY_S
                self.renew()
            if ended.wait(LOOK_EVERY_S):
                return


@contextmanager
def expiry_renewed(ledger: Ledger, plan: Plan, tell: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Keep the labels of a run's clusters ahead of the clock during the block, if it rents any.

    What is yielded takes the key of a cell each time that its thread asks for it. A thread that hangs renews nothing.
    """
    if plan.cloud is None:
        yield lambda cell_key: None
        return
    own_id, keys = store_id(ledger.store), (planned.cell.cell_key for planned in plan.cells)
    names = {key: cluster_name(own_id, ledger.run_id, key) for key in keys}
    ended = threading.Event()
    renewer = ExpiryRenewer(names.values(), accounts(), tell)
    threading.Thread(target=renewer.run, args=(ended,), name="expiry", daemon=True).start()
    try:
        yield lambda cell_key: renewer.attend(names[cell_key])
    finally:
        ended.set()  # not joined: a cloud that hangs does not hold up a flow that has ended
