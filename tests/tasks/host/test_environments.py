"""Environments are made once, survive kills, and say in one line why they cannot be made."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks.host import environment_spec, environments
from tasks.host.bounds import Bound
from tasks.host.environment_install import Installer, UntoldError, for_uv, make_importable
from tasks.host.environment_spec import ENVIRONMENTS, InstallError, check_machine, pins_in
from tests.busy_machine import PATIENCE_S
from tests.tasks.test_cell import wait_until

BACKEND = """
import pathlib, time, zipfile
here = pathlib.Path(__file__).parent

def build_wheel(directory, config_settings=None, metadata_directory=None):
    with (here / "builds").open("a") as builds:
        builds.write("built\\n")
    while (here / "hold").exists():
        time.sleep(0.02)
    name = "dummy-1-py3-none-any.whl"
    info = "dummy-1.dist-info/"
    files = {module + ".py": "" for module in (here / "modules").read_text().split()}
    files[info + "METADATA"] = "Metadata-Version: 2.1\\nName: dummy\\nVersion: 1\\n"
    files[info + "WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files[info + "RECORD"] = "".join(f + ",,\\n" for f in [*files, info + "RECORD"])
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return name
"""


class Clone:
    """A clone of this repository whose node environment is one tiny package with a build that we can hold."""

    def __init__(self, repo: Path, folder: Path) -> None:
        self.root, self.cache, self.package = folder / "clone", folder / "cache", folder / "dummy"
        for file in ("configs/checkout.py", "configs/errors.py", "configs/secrets.py"):
            (self.root / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(repo / file, self.root / file)
        shutil.copytree(repo / "tasks" / "host", self.root / "tasks" / "host")
        shutil.copytree(repo / "requirements", self.root / "requirements")
        self.package.mkdir()
        (self.package / "backend.py").write_text(BACKEND)
        (self.package / "modules").write_text(ENVIRONMENTS["node"].imports.replace(",", " "))
        (self.package / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
            '[project]\nname = "dummy"\nversion = "1"\n'
        )
        (self.cache / "specsweep" / "envs").mkdir(parents=True)
        tools = environments.ensure("uv").parents[1]
        (self.cache / "specsweep" / "envs" / tools.name).symlink_to(tools)
        self.hold = self.package / "hold"
        self.pin(f"dummy @ {self.package.as_uri()}")

    def pin(self, text: str) -> None:
        (self.root / "requirements" / "node.txt").write_text(text + "\n")

    def start(self) -> subprocess.Popen[str]:
        argv = [sys.executable, "-I", str(self.root / "tasks" / "host" / "environments.py"), "python", "node"]
        env = {**os.environ, "XDG_CACHE_HOME": str(self.cache), "PATH": "/usr/bin:/bin"}
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)

    def ensure(self) -> Path:
        with self.start() as process:
            out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err
        return Path(out.rstrip("\n"))

    def builds(self) -> int:
        log = self.package / "builds"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def folders(self) -> list[Path]:
        return list((self.cache / "specsweep" / "envs").glob("node-*/"))


@pytest.fixture
def clone(repo_root: Path, tmp_path: Path) -> Clone:
    return Clone(repo_root, tmp_path)


@pytest.mark.slow(6)
def test_made_once_and_again_only_for_other_pins(clone: Clone) -> None:
    python = clone.ensure()
    assert subprocess.run([python, "-c", "import httpx, yaml"], check=False).returncode == 0
    assert list(python.parents[1].rglob("httpx.*.pyc")), "byte-compiled"
    clone.pin(f"# reworded\n\ndummy @ {clone.package.as_uri()}  # a remark")
    assert clone.ensure() == python and clone.builds() == 1
    clone.pin(f"dummy @ {clone.package.as_uri()}#subdirectory=.")
    assert clone.ensure() != python
    assert python.exists(), "another clone may still use it"


@pytest.mark.slow(18)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_install_is_made_cleanly_by_the_next(clone: Clone, how: signal.Signals) -> None:
    clone.hold.touch()
    with clone.start() as process:
        wait_until(lambda: clone.builds() == 1, "a build")
        process.send_signal(how)
        process.stderr and process.stderr.read()
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130}[how]
    left = [(folder / environments.READY).exists() for folder in clone.folders()]
    assert left == ([] if how is signal.SIGINT else [False])
    clone.hold.unlink()
    assert clone.ensure().exists() and clone.builds() == 2


def test_ctrl_c_while_it_starts_leaves_no_traceback() -> None:
    argv = [sys.executable, "-I", "-X", "importtime", environments.__file__, "list"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.rpartition("|")[2].strip() == "argparse":
                break
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert "Traceback" not in said


@pytest.mark.slow(5)
def test_two_at_once_install_once(clone: Clone) -> None:
    clone.hold.touch()
    with clone.start() as first:
        wait_until(lambda: clone.builds() == 1, "a build")
        with clone.start() as second:
            assert second.stderr is not None
            assert "another process is making it" in second.stderr.readline()
            clone.hold.unlink()
            paths = {process.communicate(timeout=PATIENCE_S)[0] for process in (first, second)}
    assert len(paths) == 1 and clone.builds() == 1


@pytest.mark.slow(6)
def test_a_failing_requirement_ends_in_one_clear_line(clone: Clone) -> None:
    clone.pin("missing @ file:///nowhere/missing-1-py3-none-any.whl")
    with clone.start() as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, clone.folders()) == (1, "", [])
    line = err.splitlines()[-1]
    assert line.startswith("specsweep: the node environment cannot be made: uv: ")
    assert "; pip: " in line and "nowhere/missing-1-py3-none-any.whl" in line
    assert "Log: " in line and "Remedy: " in line


def test_a_cache_that_can_not_be_written_to_is_told_once_however_many_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    argv = [sys.executable, "-I", environments.__file__, "python", "control", "node"]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "file")}
    said = subprocess.run(argv, stderr=subprocess.PIPE, text=True, env=env, timeout=PATIENCE_S, check=False).stderr
    [line] = said.splitlines()
    assert f"{tmp_path}/file" in line and "set XDG_CACHE_HOME to" in line


def test_what_a_machine_lacks_is_named_before_any_download(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=10, used=9, free=1234))
        with pytest.raises(InstallError) as error:
            check_machine(ENVIRONMENTS["node"], tmp_path)
    assert str(error.value).startswith(f"{tmp_path} has 1234 bytes free, 0.6 GB are needed.")
    monkeypatch.setattr(environment_spec, "has_library", lambda _: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InstallError, match="apt-get install libnuma1 libgomp1 util-linux"):
        check_machine(ENVIRONMENTS["engine-cpu"], tmp_path)


def test_without_a_compiler_the_addon_is_a_reason_not_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    installer = Installer("engine-cpu", ENVIRONMENTS["engine-cpu"], tmp_path, tmp_path / "log", lambda _: None, None)
    assert installer.add(tmp_path / "unused.txt") == "g++ is not installed, and it is built from source"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "laid-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("laid.py", "")
        archive.writestr("laid-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: laid\nVersion: 1\n")
        archive.writestr("laid-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("laid-1.dist-info/RECORD", "")
    return path


def laid_over(folder: Path, pins: str, tools: Path | None = None) -> str:
    """Install pins as an overlay of this Python; says which installer did, and why not the one before it."""
    file = folder / "pins.txt"
    file.write_text(pins + "\n")
    spec = replace(ENVIRONMENTS["engine-diffusion"], pins=str(file), imports="laid")
    installer = Installer("engine-diffusion", spec, folder / "overlay", folder / "log", lambda _: None, tools)
    return installer.lay_over(Path(sys.executable))


def made_of(folder: Path, wheel: Path, like: environments.Name, tools: Path | None, imports: str = "laid") -> Installer:
    pins = folder.with_suffix(".txt")
    pins.write_text(f"laid @ {wheel.as_uri()}\n")
    spec = replace(ENVIRONMENTS[like], pins=str(pins), imports=imports)
    return Installer(like, spec, folder, folder.with_suffix(".log"), lambda _: None, tools)


def test_an_overlay_is_a_folder_and_leaves_its_environment_alone(tmp_path: Path, wheel: Path) -> None:
    folder = tmp_path / "overlay"
    assert laid_over(tmp_path, f"laid @ {wheel.as_uri()}") == "pip"
    assert (folder / "laid.py").exists() and list(folder.rglob("laid.*.pyc"))
    seen = subprocess.run([sys.executable, "-c", "import laid"], env={"PYTHONPATH": str(folder)}, check=False)
    assert seen.returncode == 0
    assert subprocess.run([sys.executable, "-c", "import laid"], env={}, stderr=-3, check=False).returncode == 1


def test_an_installer_that_never_ends_is_ended_and_named(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.host.environment_install.BOUNDS", {"install": Bound(0.0, 0.0)})
    with pytest.raises(InstallError, match="pip did not end within its bound of 0 s"):
        laid_over(tmp_path, f"laid @ {wheel.as_uri()}")


@pytest.mark.slow(4)
def test_only_for_tests_garbage_is_collected_less_often(tmp_path: Path, wheel: Path) -> None:
    installer = made_of(tmp_path / "made", wheel, "dev", None)
    installer.build()
    threshold = "import gc, sys; sys.exit(gc.get_threshold()[0] < 100_000)"
    assert subprocess.run([installer.python, "-c", threshold], check=False).returncode == 0
    at_its_end = "import atexit, gc; atexit._run_exitfuncs(); print(gc.get_freeze_count() > 0)"
    assert subprocess.run([installer.python, "-c", at_its_end], stdout=-1, check=False).stdout == b"True\n"
    assert {name for name, each in ENVIRONMENTS.items() if each.collects_seldom} == {"dev"}


@pytest.mark.slow(2)
def test_nothing_is_installed_that_is_not_what_was_pinned(tmp_path: Path, wheel: Path) -> None:
    pin, right = f"laid @ {wheel.as_uri()}", hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert laid_over(tmp_path, f"{pin} --hash=sha256:{'0' * 64} --hash=sha256:{right}") == "pip"
    with pytest.raises(InstallError, match="DO NOT MATCH THE HASHES"):
        laid_over(tmp_path, f"{pin} --hash=sha256:{'0' * 64}")
    tools = environments.ensure("uv")
    with pytest.raises(InstallError, match=r"uv: cause: Hash mismatch.*; pip: .*DO NOT MATCH THE HASHES"):
        laid_over(tmp_path, f"{pin} --hash=sha256:{'0' * 64}", tools)
    assert laid_over(tmp_path, f"{pin} --hash=sha256:{right}", tools) == "uv"


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The tools' interpreter beside a uv that fails."""
    real = environments.ensure("uv").parents[1]
    (tmp_path / "tools" / "bin").mkdir(parents=True)
    for name in ("lib", "pyvenv.cfg"):
        (tmp_path / "tools" / name).symlink_to(real / name)
    (tmp_path / "tools/bin/python").symlink_to(Path(sys.executable).resolve())
    (tmp_path / "tools/bin/uv").write_text("#!/bin/sh\necho error: no such luck; exit 2\n")
    (tmp_path / "tools/bin/uv").chmod(0o755)
    return tmp_path / "tools/bin/python"


@pytest.mark.slow(2)
def test_pip_does_what_uv_can_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wheel: Path, broken: Path) -> None:
    assert laid_over(tmp_path, f"laid @ {wheel.as_uri()}", broken) == "pip; uv: error: no such luck"
    installer = made_of(tmp_path / "made", wheel, "node", broken)
    assert installer.build() == "pip; uv: error: no such luck"
    assert not list(installer.folder.glob("lib/*/site-packages/pip")), "lent by the tools"
    monkeypatch.setenv("PIP_ONLY_BINARY", ":all:")
    assert laid_over(tmp_path, f"laid @ {wheel.as_uri()}", broken) == "pip", "uv can't be told how"


def test_byte_code_is_shared_by_environments_that_have_the_same_files(tmp_path: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("whole/__init__.py", "")
        archive.writestr("whole/tests/test_it.py", "")
    for name in ("one", "two"):
        made_of(tmp_path / name, wheel, "node", environments.ensure("uv"), imports="whole").build()
    one, two = (sorted(tmp_path.glob(f"{name}/lib/*/site-packages/whole/**/*.pyc")) for name in ("one", "two"))
    assert [code.name.split(".")[0] for code in two] == ["__init__"], "tests are compiled when they are imported"
    assert one[0].samefile(two[0])


@pytest.mark.parametrize(("has_ops", "registered"), [(False, []), (True, ["torchvision::nms"])])
def test_torchvision_describes_only_ops_that_it_has(tmp_path: Path, has_ops: bool, registered: list[str]) -> None:
    file = tmp_path / "_meta_registrations.py"
    file.write_text('@torch.library.register_fake("torchvision::nms")\ndef meta_nms(dets):\n    return dets\n')
    make_importable(tmp_path)
    make_importable(tmp_path)
    names: list[str] = []
    library = SimpleNamespace(register_fake=lambda name: names.append(name) or (lambda function: function))
    torchvision = SimpleNamespace(extension=SimpleNamespace(_has_ops=lambda: has_ops))
    space = {"torch": SimpleNamespace(library=library), "torchvision": torchvision}
    exec(file.read_text(), space)
    assert callable(space["meta_nms"])
    assert names == registered


def refused(repo: Path, python: Path) -> str:
    argv, env = [repo / "bin" / "environment", "node"], {**os.environ, "PYTHON": str(python)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert "Remedy: " in done.stderr
    return done.stderr


def pretending(python: Path, what: str) -> Path:
    """A Python that answers `-I -c` as if `what` were so, and otherwise says its own name."""
    answer = f'exec {sys.executable} -I -c "{what}; $3"'
    python.write_text(f'#!/bin/sh\n[ "$2" = -c ] && {answer}\necho {python.name}; exit 3\n')
    python.chmod(0o755)
    return python


def test_a_python_that_is_not_there_or_was_not_tried_is_refused_in_one_line(repo_root: Path, tmp_path: Path) -> None:
    assert "(/nowhere/python3)" in refused(repo_root, Path("/nowhere/python3"))
    for version in ("3.10", "3.14"):
        pretend = f"import sys; sys.version_info = ({version.replace('.', ', ')}, 0, 'final', 0)"
        python = pretending(tmp_path / "python3", pretend)
        assert f"{python} is {version}" in refused(repo_root, python)


@pytest.mark.parametrize(("flags", "taken"), [("--enable-optimizations", "second"), ("", "first")])
def test_an_optimized_python_goes_first(repo_root: Path, tmp_path: Path, flags: str, taken: str) -> None:
    built = "import sys, sysconfig; sys.base_prefix = '/opt'; sysconfig.get_config_var = lambda name: '{}'"
    pythons = [pretending(tmp_path / "first", built.format("")), pretending(tmp_path / "second", built.format(flags))]
    env = {**os.environ, "PYTHON": " ".join(map(str, pythons))}
    asked = subprocess.run([repo_root / "bin" / "environment", "node"], env=env, capture_output=True, text=True)
    assert (asked.returncode, asked.stdout) == (3, f"{taken}\n"), asked.stderr


def test_every_pin_has_its_hashes_and_names_no_host_and_a_new_hash_reinstalls_nothing(repo_root: Path) -> None:
    unhashed = {"engine-suffix.txt", "hret-overrides.txt", "lab-runtime.txt", "torch-cpu.txt"}  # compile.sh says why
    for file in (repo_root / "requirements").glob("*.txt"):
        text = file.read_text()
        assert "://" not in text and "file:" not in text and "-index" not in text, file
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert all(" --hash=sha256:" in line for line in lines) == (file.name not in unhashed), file
        assert not any("--hash" in pin for pin in pins_in(file)), file


@pytest.mark.parametrize(
    ("listed", "variables", "arguments"),
    [
        ("", {}, []),
        ("global.index-url='https://u:p@a/root'", {"UV_DEFAULT_INDEX": "https://u:p@a/root"}, []),
        ("global.extra-index-url='\\nfile:///b\\nhttps://c'", {"UV_INDEX": "file:///b https://c"}, []),
        (":env:.find-links='/wheels https://d'", {"UV_FIND_LINKS": "/wheels,https://d"}, []),
        (":env:.find-links='wheels'", {"UV_FIND_LINKS": str(Path.cwd() / "wheels")}, []),
        ("user.index-url='https://a'\nwheel.no-binary=':all:'", {}, []),
        ("global.cert='/ca.pem'\nglobal.client-cert='/me'", {"SSL_CERT_FILE": "/ca.pem", "SSL_CLIENT_CERT": "/me"}, []),
        ("global.constraint='/c'", {"UV_CONSTRAINT": "/c", "UV_BUILD_CONSTRAINT": "/c"}, []),
        ("global.trusted-host='a:8080 b'", {"UV_INSECURE_HOST": "a:8080 b"}, []),
        ("global.proxy='http://p:1'", {"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:1"}, []),
        ("global.timeout='15'\n:env:.default-timeout='180.5'", {"UV_HTTP_TIMEOUT": "180"}, []),
        ("global.retries='9'", {"UV_HTTP_RETRIES": "9"}, []),
        ("global.no-index='true'\nglobal.find-links='/w'", {"UV_FIND_LINKS": "/w"}, ["--no-index"]),
        ("global.no-index='false'", {}, []),
        (":env:.index-url='https://e'\nglobal.index-url='https://g'", {"UV_DEFAULT_INDEX": "https://e"}, []),
        (":env:.index-url='https://e'\ninstall.index-url='https://i'", {"UV_DEFAULT_INDEX": "https://e"}, []),
        ("install.index-url='https://i'\nglobal.index-url='https://g'", {"UV_DEFAULT_INDEX": "https://i"}, []),
        (":env:.disable-pip-version-check='1'\nglobal.progress-bar='off'", {}, []),
    ],
)
def test_uv_is_told_what_pip_was_told(listed: str, variables: dict[str, str], arguments: list[str]) -> None:
    assert for_uv(listed) == ({"UV_INDEX_STRATEGY": "unsafe-best-match"} | variables, arguments)


@pytest.mark.parametrize("key", ["only-binary", "no-binary", "target", "use-feature", "never-heard-of"])
def test_what_uv_can_not_be_told_is_named_without_its_value(key: str) -> None:
    with pytest.raises(UntoldError) as error:
        for_uv(f"global.index-url='https://a'\ninstall.{key}='secret'")
    assert key in str(error.value) and "secret" not in str(error.value)
