"""A cluster that nobody hears of: run on the machine, it launches one without a node runner, and asks only SkyPilot.

Prints `up`, and when the cluster has ended how `SkyCluster.look` says it has, as one JSON document; then it launches
and takes down another of that name, as a flow would that goes on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flows.clusters.protocol import CellJob, cluster_name
from flows.clusters.skypilot import api as sky_api
from flows.clusters.skypilot.api import offers
from flows.clusters.skypilot.cluster import SkyCluster
from flows.clusters.skypilot.launch_watch import LaunchBounds
from flows.clusters.skypilot.task_file import Rental, load_task, sky_task, task_for

JOB = CellJob("/nowhere", "unheard", "0" * 16)
NAME = cluster_name(*JOB[:3])


def main() -> None:
    file = load_task(sys.argv[1])
    file = file._replace(config=file.config | {"setup": "true", "run": "sleep infinity"})
    offer = offers(sky_task(file))[0]

    @contextmanager
    def task_of(job: CellJob) -> Iterator[Any]:
        yield task_for(file, Rental(job, offer, None, time.time() + 3600, None, None), {})

    bounds = LaunchBounds(1.0, lambda: None, lambda: True)
    cluster = SkyCluster(NAME, task_of, offer, Path.home() / "unheard" / "launch.log", lambda: False, bounds)
    cluster.launch(JOB)
    (rented,) = sky_api.rented([NAME])
    print("up", flush=True)
    while (ending := cluster.look(None)) is None:
        time.sleep(1)
    cluster.down()
    print(json.dumps(ending._asdict()), flush=True)
    # SkyPilot's clean-up of a preempted job may be cut short; what it leaves has to go with the next job of its name
    left = Path.home() / ".sky_clusters" / str(rented.name_on_cloud) / ".sky" / "locks" / ".job_1.lock"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    cluster.launch(JOB)
    cluster.down()


if __name__ == "__main__":
    main()
