"""Records the run of a sweep without measuring anything: `record.py STORE SWEEP [GPU]`; prints its cells."""

from __future__ import annotations

import sys

from configs.errors import SpecsweepError, leave
from configs.expand import default_run_id
from flows.plans import make_plan, record_run
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store
from warehouse.ledger.store.proof import require_create_only


def main(store_url: str, sweep: str, gpu: str | None = None) -> None:
    """Record the run under the name that `sweep run` would give it; on GPU, if one is named, for the sweep's own."""
    store = open_store(store_url)
    require_create_only(store)
    plan = make_plan(sweep, gpu)
    run_id = default_run_id(plan)
    record_run(Ledger(store, run_id), plan)
    for planned in plan.cells:
        print(run_id, planned.cell.cell_key, planned.cell.label)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    except SpecsweepError as error:
        sys.exit(leave("record", error))
