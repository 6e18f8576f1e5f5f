"""Trains one member: ``python -m tasks.family.training.member NAME --out DIR ...``, a process that build.py starts.

Standard output: one line of JSON per progress report, at most one a second. The member's folder is complete
when `DONE` is in it: name, steps, seconds (wall and CPU), parameters, final loss, scores, recipe hash, sha256 of the
other files.
"""

import argparse
import hashlib
import importlib
import json
import os
import time
from pathlib import Path

import torch

from tasks.family.members import DONE_FILE
from tasks.family.training.fit import Job, Report
from tasks.family.training.recipe import MEMBERS, scaled_steps

REPORT_INTERVAL_S = 1.0


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Train one member of the tiny family.")
    parser.add_argument("member", choices=MEMBERS)
    parser.add_argument("--out", type=Path, required=True, help="folder to fill")
    parser.add_argument("--target", type=Path, required=True, help="the trained target, for members that need one")
    parser.add_argument("--checkpoint", type=Path, help="file to continue from and to keep state in")
    parser.add_argument("--steps-scale", type=float, default=1.0)
    parser.add_argument("--recipe", required=True, help="the builder's recipe hash, for DONE")
    parser.add_argument(
        "--parent", type=int, required=True, help="process id of the builder; without it, training stops"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.mkdir(parents=True, exist_ok=True)
    steps = scaled_steps(arguments.member, arguments.steps_scale)
    job = Job(arguments.out, arguments.target, steps, arguments.checkpoint)
    started_s = time.monotonic()
    trainer = importlib.import_module(f"tasks.family.training.{arguments.member}")
    trained = trainer.train(job, reporter(arguments.parent))
    done = {
        "name": arguments.member,
        "recipe": arguments.recipe,
        "steps": steps,
        "seconds": round(time.monotonic() - started_s, 1),
        "cpu_seconds": round(time.process_time(), 1),
        "parameters": trained.parameters,
        "loss": round(trained.loss, 4),
        "scores": trained.scores,
        "sha256": {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(job.out.iterdir())},
    }
    (job.out / DONE_FILE).write_text(json.dumps(done, indent=1))


def reporter(parent: int) -> Report:
    """A progress call that prints a line a second, and ends this process once its builder is gone."""
    started_s = time.monotonic()
    printed_s = 0.0
    first_step = 0

    def report(step: int, steps: int, loss: float) -> None:
        nonlocal printed_s, first_step
        if os.getppid() != parent:
            raise SystemExit("the builder is gone")
        now_s = time.monotonic()
        first_step = first_step or step
        if now_s - printed_s < REPORT_INTERVAL_S and step < steps:
            return
        printed_s, elapsed_s = now_s, now_s - started_s
        eta_s = elapsed_s / (step - first_step + 1) * (steps - step)
        line = {
            "step": step,
            "steps": steps,
            "elapsed_s": round(elapsed_s, 1),
            "eta_s": round(eta_s, 1),
            "loss": round(loss, 3),
        }
        print(json.dumps(line), flush=True)

    return report


if __name__ == "__main__":
    main()
