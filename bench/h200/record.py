"""Records the run of a sweep in a store without measuring anything: `record.py STORE SWEEP`; prints its cells."""

from __future__ import annotations

import sys

from configs.errors import SpecsweepError, leave
from configs.expand import default_run_id
from flows.plans import make_plan, record_run
from warehouse.ledger import Ledger
from warehouse.store import open_store
from warehouse.store.proof import require_create_only


def main(store_url: str, sweep: str) -> None:
    """Record the run under the name that `sweep run` would give it."""
    store = open_store(store_url)
    require_create_only(store)
    plan = make_plan(sweep)
    run_id = default_run_id(plan)
    record_run(Ledger(store, run_id), plan)
    for planned in plan.cells:
        print(run_id, planned.cell.cell_key, planned.cell.label)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except SpecsweepError as error:
        sys.exit(leave("record", error))
