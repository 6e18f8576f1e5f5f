"""A machine with a card, as its programs show it: a FAKE nvidia-smi, a FAKE vllm and a FAKE docker in one folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from configs.checkout import ROOT

FAKE_DRIVER = """#!/bin/sh
# a FAKE nvidia-smi: one card, which other processes use
case "$*" in
*--query-gpu*) echo '0, GPU-aaaa, {card}, 580.95.05, 143771, {used_mib}, 345' ;;
*--query-compute-apps*) {apps} ;;
*) echo '| NVIDIA-SMI 580.95.05    Driver Version: 580.95.05    CUDA Version: 13.0     |' ;;
esac
"""

FAKE_VLLM = """#!/bin/sh
# a FAKE vllm: says a version, and serves with the fake engine
if [ "$1" = --version ]; then
  echo 'INFO 11-22 10:00:00 [__init__.py:241] Automatically detected platform cuda.'
  {version}
  exit
fi
exec {python} {root}/tests/fake_engine.py "$@"
"""

FAKE_DOCKER = """#!{python}
# a FAKE docker: a daemon's container is a process in a session of its own, with no variable but those that were named
import os, signal, subprocess, sys
here, words = {folder!r}, sys.argv[1:]
if words == ["version"]:
    sys.exit(open(here + "/broken").read() if os.path.exists(here + "/broken") else 0)
if words[:2] == ["rm", "--force"]:
    os.kill(int(words[2]), signal.SIGKILL)
    open(here + "/removed", "a").write(words[2] + "\\n")
    sys.exit()
assert words[0] == "run" and "--network=host" in words and "--rm" in words, words
image = words.index("an/image")
named = [word[len("--env="):] for word in words[:image] if word.startswith("--env=")]
env = {{name: os.environ[name] for name in named if name in os.environ and name != "SPECSWEEP_ENGINE"}}
argv = [{python!r}, {root!r} + "/tests/fake_engine.py", *words[image + 1 :]]
cid = next(word[len("--cidfile="):] for word in words if word.startswith("--cidfile="))
named_first = 'until [ -s "$0" ]; do sleep 0.01; done; exec "$@"'  # a container has its id before anything in it runs
inside = subprocess.Popen(
    ["sh", "-c", named_first, cid, *argv], env=env | {{"PYTHONPATH": {root!r}}}, start_new_session=True
)
with open(cid, "x") as file:
    file.write(str(inside.pid))
open(here + "/seen", "w").write("\\n".join([*words[:image], *sorted(env)]))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # asked to leave, and its container stays
sys.exit(inside.wait())
"""


class FakeBox:
    """The folder with the programs; each method puts one there, or replaces it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.env = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "0"}
        """What a command needs to find them first, and to see all cards."""

    def card(self, name: str = "NVIDIA H200", used_mib: int = 512, apps: str = "") -> None:
        """A driver that shows one card; `apps`: a shell command that prints who uses it."""
        self._write("nvidia-smi", FAKE_DRIVER.format(card=name, used_mib=used_mib, apps=apps or "true"))

    def dead_driver(self) -> None:
        self._write("nvidia-smi", "#!/bin/sh\necho 'Failed to initialize NVML' >&2; exit 18\n")

    def vllm(self, version: str = "0.32.0", name: str = "vllm") -> Path:
        """A vLLM of a version; one that doesn't start where it is empty."""
        said = f"echo {version}" if version else "echo 'ImportError: libcudart.so.13 is missing' >&2; exit 1"
        return self._write(name, FAKE_VLLM.format(version=said, python=sys.executable, root=ROOT))

    def vllm_script(self, version: str) -> None:
        """A vLLM as pip writes it, by whose first line its Python is found; it only says its version."""
        self._write("vllm", f"#!{sys.executable}\nprint({version!r})\n")

    def docker(self) -> None:
        self._write("docker", FAKE_DOCKER.format(python=sys.executable, root=str(ROOT), folder=str(self.folder)))

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path
