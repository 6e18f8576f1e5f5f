"""What a step costs beyond the requests it times (budget: under 1 s, and under 2 % of a 10-minute step).

    bin/run python bench/step_overhead.py

Runs one cell against the fake engine of the tests, whose speed is known, and compares the step's wall clock with the
sum of its windows, warm-ups and prefill probes. The last line is one JSON document.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tasks.host.environments import ensure
from tests.fake_run import FakeRun


def main() -> None:
    """Measure one cell and print where the throughput step's seconds went."""
    with tempfile.TemporaryDirectory() as folder:
        run = FakeRun(Path(folder))
        code, said = run.finish(ensure("node"))
        if code != 0:
            raise SystemExit(said)
        windows = run.rows("throughput", "windows")
        timed_s = sum(row["wall_s"] + (row["prefill_s"] or 0.0) for row in windows)
        conditions = {row["condition"] for row in windows}
        # one untimed warm-up per condition, as long as the mean request of its windows
        requests = run.rows("throughput", "requests")
        warm_up_s = sum(
            max(row["wall_s"] for row in requests if row["condition"] == name and row["mode"] == "fixed")
            for name in conditions
        )
        wall_s = run.commit("throughput").wall_s
    overhead_s = wall_s - timed_s - warm_up_s
    print(json.dumps({"step_s": wall_s, "timed_s": timed_s, "warm_up_s": warm_up_s, "overhead_s": overhead_s}))


if __name__ == "__main__":
    main()
