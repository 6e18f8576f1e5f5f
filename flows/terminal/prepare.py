"""Make what a sweep needs on this machine: environments, and a model of the demo family that isn't shipped."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from typing import cast

from rich.console import Console

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.schema import Plan
from flows.plans import engine_environments, family_members, framework_environments
from tasks.family.members import ON_REQUEST, trained_dir, why_not
from tasks.host import environments

LINE_EVERY_S = 20.0
"""Pause between two lines of progress where no terminal can show a moving one."""


class PreparationFailed(SpecsweepError):
    """Something the sweep needs could not be made; the text says what and why."""


def prepare(plan: Plan, console: Console) -> None:
    """Make the environments that the plan needs on this machine, and train what it needs of the demo family.

    Raises:
        InstallError: an environment could not be made.
        PreparationFailed: a member of the family could not be trained.
    """
    frameworks = framework_environments(plan) if plan.cloud is None else []  # a rented node makes its own
    with console.status("looking at environments") as status:
        for name in ("node", *engine_environments(plan), *frameworks):
            environments.ensure(cast(environments.Name, name), tell=status.update)
    lacking = [member for member in family_members(plan) if member in ON_REQUEST and why_not(member)]
    if lacking:
        train(lacking, console)


def train(members: Sequence[str], console: Console) -> None:
    """Train members of the demo family, with a progress line.

    Raises:
        PreparationFailed: the builder failed; what it finished is kept.
    """
    python = environments.ensure("engine-cpu")
    argv = [str(python), "-m", "tasks.family.training.build", "--json"]
    argv += [option for member in members for option in ("--only", member)]
    console.print(f"training {', '.join(members)} of the demo family once (a few minutes, kept in {trained_dir()})")
    last = ""
    with (
        subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as builder,
        console.status("training") as status,
    ):
        try:
            said = time.monotonic()
            for line in builder.stdout or ():
                last = line.strip() or last
                status.update(_training_line(last))
                if not console.is_terminal and time.monotonic() - said > LINE_EVERY_S:
                    console.print(_training_line(last), highlight=False)
                    said = time.monotonic()
        except BaseException:
            builder.terminate()
            raise
    if builder.returncode != 0:
        raise PreparationFailed(f"training the demo family failed with code {builder.returncode}: {last}")


def _training_line(line: str) -> str:
    try:
        update = json.loads(line)
        return (
            f"training {update['member']}: step {update['step']} of {update['steps']}, "
            f"{update['elapsed_s']:.0f} s so far, about {update['eta_s']:.0f} s left"
        )
    except (ValueError, KeyError, TypeError):
        return line[:120]
