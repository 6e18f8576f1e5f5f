"""How long `sweep` takes to find that a measured sweep of 1 000 cells has nothing to do (budget: 5 s, local store).

`bin/run python bench/nothing_to_do.py [CELLS]` commits every step of every cell, then times planning, the forecast and
the look at the ledger. The last line is one JSON document.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from configs.expand import default_run_id, expand
from configs.load import load_sweep
from flows.forecast.forecast import forecast
from flows.terminal.progress import ProgressReader
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store

CELL = "  - {{model: tiny-gemma4, precision: bf16, technique: ar, serving: {{max_model_len: {length}}}}}\n"


def main() -> None:
    """Build the store, then time what a user waits for."""
    cells = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder:
        sweep = Path(folder) / "many.yaml"
        rows = "".join(CELL.format(length=2048 + index) for index in range(cells))
        sweep.write_text(f"name: many\nengine: vllm-cpu\ngpu: cpu\nsuite: demo\nspot: false\ncells:\n{rows}")
        plan = expand(load_sweep(str(sweep)))
        ledger = Ledger(open_store(f"{folder}/store"), default_run_id(plan))
        ledger.write_plan(plan)
        for planned in plan.cells:
            for spec in planned.steps:
                ledger.commit(planned.cell.cell_key, ledger.new_commit(spec.step, 1, "bench", "ok", [], 1.0, []))
        started = time.perf_counter()
        plan = expand(load_sweep(str(sweep)))
        planned_s = time.perf_counter() - started
        ledger = Ledger(open_store(f"{folder}/store"), default_run_id(plan))
        nothing = forecast(plan, ledger.committed_steps()).gpu_h == 0
        looked_s = time.perf_counter() - started
        complete = ProgressReader(ledger, plan).read().complete
        total_s = time.perf_counter() - started
    seconds = {"plan_s": planned_s, "plan_and_forecast_s": looked_s, "plan_and_verdicts_s": total_s}
    print(json.dumps({"cells": cells, "nothing_to_do": nothing and complete, **seconds}))


if __name__ == "__main__":
    main()
