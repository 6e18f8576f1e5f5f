"""`sweep doctor`: is everything there that a sweep needs, and can the store be trusted?"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

from configs.evals.suites import Framework
from flows.terminal.doctor_sky import sky_checks
from flows.terminal.doctor_store import store_checks
from tasks import gpu
from tasks.engine.machine import state_dir
from tasks.family.recipe import family_dir, missing
from tasks.host import environments
from warehouse.store.proof import Check

ENGINE_DISK_GIB = 6.0
"""Room for the engine's and the control side's environments, measured at 4 GiB, with some to spare."""

BUSY_MIB = 1024.0
"""Memory that is in use on an idle card: less than this is the driver's own and a desktop's."""

FAMILY = ("target", "mtp", "dflash", "draft")
"""Members of the demo family that the demo serves."""


def examine(store_url: str) -> list[Check]:
    """Every check of this machine, of one store, and of the clouds."""
    return [*_machine(), *_cards(), *_vllm(), *_environments(), *_family(), *store_checks(store_url), *sky_checks()]


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


def _cards() -> list[Check]:
    """What a local engine would find: a machine without a card serves on its processor, or rents."""
    if not shutil.which("nvidia-smi"):
        return [Check("GPU", True, "none here: cells run on the processor, or on rented machines", remark=True)]
    found = gpu.cards()
    if not found:
        remedy = "run `nvidia-smi`: the driver doesn't match its kernel module, or the cards are not passed through"
        return [Check("GPU", False, "nvidia-smi is here but shows no card", remedy)]
    return [_card(card) for card in found]


def _card(card: gpu.Card) -> Check:
    size = "unknown memory" if card.memory_mib is None else f"{card.memory_mib / 1024:.0f} GiB"
    is_busy = (card.used_mib or 0.0) > BUSY_MIB
    used = f", {(card.used_mib or 0.0) / 1024:.1f} GiB in use" if is_busy else ""
    remedy = "end what uses it (`nvidia-smi`), or no speed measured here is to be believed" if is_busy else ""
    return Check(f"GPU {card.number}", True, f"{card.name}, {size}{used}, driver {card.driver}", remedy, remark=is_busy)


def _vllm() -> list[Check]:
    """Versions of the engines that are here: ours for the processor, and the `vllm` that engines without one run."""
    ours = environments.python_of("engine-cpu")
    command = shutil.which("vllm")
    said = [] if ours is None else [_version("vLLM of engine-cpu", [str(ours)])]
    if command is None:
        return [*said, Check("vLLM on the PATH", True, "none: GPU cells run in the engine's image", remark=True)]
    with Path(command).open("rb") as file:
        first = file.readline().decode(errors="replace").strip()
    if not first.startswith("#!"):
        return [*said, Check("vLLM on the PATH", True, f"{command} is no Python script: version unknown", remark=True)]
    return [*said, _version("vLLM on the PATH", first.removeprefix("#!").split())]


def _version(name: str, python: list[str]) -> Check:
    """The installed version, read without importing vLLM, which takes ten seconds."""
    argv = [*python, "-c", "import importlib.metadata as m; print(m.version('vllm'))"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        return Check(name, False, f"{python[0]}: {error.strerror}", "install vLLM anew: its interpreter is gone")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        return Check(name, False, f"{python[0]}: {last}", "install vLLM anew into that environment")
    return Check(name, True, done.stdout.strip())


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
    lacking = missing(family_dir(), FAMILY)
    detail = f"{family_dir()}" if not lacking else f"not trained yet: {', '.join(lacking)}"
    return [Check("demo family", True, detail, "`make demo` trains it" if lacking else "", remark=bool(lacking))]
