"""A runner in the middle of a job that never ends: `python hang_in_adapter.py WORKDIR`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tasks.frameworks.job import Item, Job, Task
from tasks.frameworks.process import Framework

workdir = Path(sys.argv[1])
job = Job("ask", Task("gpqa"), (Item("one", "?", (), "A", "", {}),), "", "hanging", 1, 1, True, str(workdir))
framework = Framework("fake", Path(sys.executable), workdir, "tests.tasks.frameworks.fake_adapter")
asyncio.run(framework.run(job, "job"))
