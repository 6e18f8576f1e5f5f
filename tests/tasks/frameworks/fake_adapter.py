"""A FAKE adapter on the real loop: the job's `model` says how it misbehaves."""

import os
import subprocess
import sys
from pathlib import Path

from tasks.frameworks.job import Job, Result, Sample, serve

print("an import says hello on stdout")

SLEEPS = (sys.executable, "-c", "import time; time.sleep(600)")


def run(job: Job) -> Result:
    done = [Sample(item.item_id, [], "", None, None, {"env": dict(os.environ)}) for item in job.items]
    if job.model == "missing":
        done.pop()
    elif job.model == "twice":
        done[-1:] = done[:1]
        done.append(Sample(job.items[-1].item_id, [], "", None, None))
    elif job.model == "unknown":
        done.append(Sample("nobody-asked", [], "", None, None))
    elif job.model == "failing":
        raise RuntimeError("out\nof paper")
    elif job.model == "dying":
        print("the last straw", flush=True)
        os._exit(3)
    elif job.model == "hanging":
        child = subprocess.Popen(SLEEPS, start_new_session=True)
        (Path(job.workdir) / "child").write_text(str(child.pid))
        child.wait()
    return Result("fake", str(os.getpid()), tuple(done))


if __name__ == "__main__":
    serve("hret", run)
