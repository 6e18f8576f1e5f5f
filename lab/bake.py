"""The runtime that SkyPilot would download on every new instance, made once and kept under the hash of its pins."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from lab.errors import LabError
from lab.paths import FLEET_UID
from tasks.host.environment_install import Tell
from tasks.host.environment_spec import REQUIREMENTS, pins_in, user_cache

PINS = REQUIREMENTS / "lab-runtime.txt"
RECIPE = 1  # to be raised when baking changes in a way that finished layers have to be made again
NEWEST_PYTHON = (3, 11)  # ray 2.9.3, which SkyPilot 0.14.1 installs on instances, has no wheels for newer ones
Command = list[str | Path]

_LAYER = "layer"
_TICK_S = 0.5


def lab_folder() -> Path:
    """Where this user's labs keep the bakes that they share; the default lab lies there, too."""
    return user_cache() / "lab"


def bake_python() -> Path | None:
    """An interpreter that the runtime can be made with; None if this machine has only newer ones."""
    candidates = [sys.executable, *filter(None, map(shutil.which, ("python3.11", "python3.10")))]
    for candidate in candidates:
        look = "import sys; print(sys.version_info[1], sys._base_executable)"
        asked = subprocess.run([candidate, "-c", look], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            minor, base = asked.stdout.strip().split(" ", 1)
            if (3, int(minor)) <= NEWEST_PYTHON:
                return Path(base).resolve()
    return None


def baked(tools: Path, tell: Tell) -> Path:
    """The baked layer: `uv`, `wheels/` and `layer/<folder of the home>`; made first if it is missing.

    `tools` is the environment `uv`, whose uv and pip do the work. Raises LabError: it can't be made.
    """
    python = bake_python()
    if python is None:
        raise LabError("no Python 3.11 for the instances' runtime. Remedy: apt-get install python3.11")
    text = "\n".join([str(RECIPE), str(python), *pins_in(PINS)])
    folder = lab_folder() / f"bake-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("a", encoding="utf-8") as lock:
        tell("runtime of the instances: waiting for any other process that makes it")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _bake(folder, python, tools, tell)
    return folder


def _bake(folder: Path, python: Path, tools: Path, tell: Tell) -> None:
    raw = folder.with_suffix(".part")
    shutil.rmtree(raw, ignore_errors=True)
    uv = raw / "uv"
    runtime, user = raw / _LAYER / "skypilot-runtime", raw / _LAYER / "sky-user-env"
    pins, wheels = raw / "pins.txt", raw / "wheels"
    (raw / _LAYER).mkdir(parents=True)
    shutil.copy2(tools.parent / "uv", uv)
    # SkyPilot brings its own wheel to every instance
    pins.write_text("\n".join(pin for pin in pins_in(PINS) if not pin.startswith("skypilot==")), encoding="utf-8")
    venv: Command = [uv, "venv", "--quiet", "--no-project", "--relocatable", "--python", python]
    install: Command = [uv, "pip", "install", "--quiet", "--no-index", "--find-links", wheels, "--no-deps"]
    install += ["--link-mode", "copy"]
    # pip fetches, because it knows the user's index; uv installs, because its environments can be moved
    fetch: Command = [tools, "-m", "pip", "--python", runtime / "bin/python", "wheel", "--quiet", "--no-deps"]
    steps: tuple[tuple[str, Command], ...] = (
        ("new environment", [*venv, runtime]),
        ("fetching wheels", [*fetch, "--wheel-dir", wheels, "--requirement", pins]),
        ("installing", [*install, "--compile-bytecode", "--python", runtime, "--requirement", pins]),
        ("the user's environment", [*venv, "--system-site-packages", user]),
        ("pip for it", [*install, "--python", user, "pip", "setuptools", "wheel"]),
    )
    started = time.monotonic()
    log = folder.with_suffix(".log")
    log.write_text("", encoding="utf-8")
    for title, command in steps:
        _run(title, command, log, raw, started, tell)
    if os.geteuid() == 0:
        _give_away(raw)
    raw.rename(folder)


def _run(title: str, command: Command, log: Path, raw: Path, started: float, tell: Tell) -> None:
    environ = os.environ | {"UV_CACHE_DIR": str(raw / "cache"), "UV_NO_PROGRESS": "1", "UV_NO_CONFIG": "1"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with log.open("a", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environ)
        try:
            while process.poll() is None:
                tell(f"runtime of the instances: {time.monotonic() - started:.0f} s, {title}")
                time.sleep(_TICK_S)
        except BaseException:
            process.kill()
            process.wait()
            raise
    shutil.rmtree(raw / "cache", ignore_errors=True)
    if process.returncode != 0:
        lines = log.read_text(encoding="utf-8").strip().splitlines()
        last = ([line for line in lines if "error" in line.lower()] or lines)[-1:]
        raise LabError(
            f"the instances' runtime can't be made: {title} ended with {process.returncode}: {''.join(last)}. "
            f"Log: {log}. Remedy: check that the package index can be reached (pip config list), then try again"
        )


def _give_away(folder: Path) -> None:
    """Give a folder to the user that bodies run as: an overlay can only change files whose owner exists in the body."""
    for here, folders, files in os.walk(folder):
        for name in ("", *folders, *files):
            os.lchown(Path(here, name), FLEET_UID, FLEET_UID)
