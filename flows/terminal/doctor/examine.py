"""All checks of the doctor, in the order in which they are shown, and those of our own installation."""

from __future__ import annotations

import shutil
import sys
from typing import get_args

from configs.evals.suites import Framework
from flows.terminal.doctor.serving import serving_checks
from flows.terminal.doctor.sky import sky_checks
from flows.terminal.doctor.store import store_checks
from tasks.engine.machine import state_dir
from tasks.family.members import ON_REQUEST, RESTORE, SHIPPED, TRAIN, damage_of, folder_of, trained_dir
from tasks.host import environments
from warehouse.store.proof import Check

ENGINE_DISK_GIB = 6.0
"""Room for the engine's and the control side's environments, measured at 4 GiB, with some to spare."""


def examine(store_url: str) -> list[Check]:
    """Every check of this machine, of one store, and of the clouds."""
    return [*_machine(), *serving_checks(), *_environments(), *_family(), *store_checks(store_url), *sky_checks()]


def _machine() -> list[Check]:
    python_ok = sys.version_info >= (3, 11)
    state_dir().mkdir(parents=True, exist_ok=True)
    free_gib = shutil.disk_usage(state_dir()).free / 2**30
    return [
        Check("Python 3.11 or newer", python_ok, sys.version.split()[0], "" if python_ok else "install Python 3.11"),
        Check(
            "free disk for environments",
            free_gib >= ENGINE_DISK_GIB,
            f"{free_gib:.0f} GiB free in {state_dir().parent}",
            "" if free_gib >= ENGINE_DISK_GIB else f"free {ENGINE_DISK_GIB:.0f} GiB or set XDG_CACHE_HOME",
        ),
    ]


def _environments() -> list[Check]:
    checks = []
    wanted: tuple[environments.Name, ...] = ("control", "node", "engine-cpu", *get_args(Framework))
    for name in wanted:
        python = environments.python_of(name)
        first = "the first run with one of its evaluations" if name in get_args(Framework) else "`make demo`"
        remedy = "" if python else f"`bin/environment {name}` makes it; {first} does so by itself"
        checks.append(Check(f"environment {name}", True, str(python or "not made yet"), remedy, remark=python is None))
    if environments.python_of("engine-cpu"):
        reason = environments.suffix_unavailable()
        checks.append(Check("suffix decoding (optional)", True, reason or "installed", remark=reason is not None))
    return checks


def _family() -> list[Check]:
    broken = [f"{name} {damage} in {folder_of(name)}" for name in SHIPPED if (damage := damage_of(folder_of(name)))]
    shipped = "; ".join(broken) or f"{', '.join(SHIPPED)}, as shipped"
    untrained = [name for name in ON_REQUEST if damage_of(folder_of(name))]
    trained = f"not trained yet: {', '.join(untrained)}" if untrained else str(trained_dir())
    return [
        Check("demo family", not broken, shipped, RESTORE if broken else ""),
        Check("demo family, on request", True, trained, TRAIN if untrained else "", remark=bool(untrained)),
    ]
