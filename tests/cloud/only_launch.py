"""A flow's launch of one cell and nothing else: no Prefect, no heartbeat, nobody who follows it or takes it down.

`python -m tests.cloud.only_launch SWEEP STORE RUN CELL`; the run is recorded.
"""

from __future__ import annotations

import signal
import sys

from flows.clock import StoppableClock
from flows.clusters.protocol import CellJob, CellNeed, Launch
from flows.plans import make_plan
from flows.renting.sky_site import sky_site
from flows.run_context import purse_of
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store


def main() -> None:
    sweep, store_url, run_id, cell_key = sys.argv[1:]
    plan, ledger, clock = make_plan(sweep), Ledger(open_store(store_url), run_id), StoppableClock()
    assert plan.cloud is not None
    site = sky_site(ledger, plan, plan.cloud, clock, purse_of(ledger, plan, plan.cloud, clock))
    decision = site.choose(CellNeed(cell_key, losses=0, remaining_s=60.0, elapsed_s=0.0))
    assert isinstance(decision, Launch)
    site.cluster(cell_key, decision.offer).launch(CellJob(store_url, run_id, cell_key))
    signal.pause()


if __name__ == "__main__":
    main()
