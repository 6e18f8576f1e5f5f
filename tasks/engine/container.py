"""An engine in a container of this machine: the options that `docker run` needs in addition to the user's words.

Client and engine meet on loopback at a port chosen anew for each start, so the container shares the host's network. A
variable gets in if it is named, a folder if it is mounted, here under its own path. The container belongs to the
daemon: ending the process that asked for it leaves it running. So its id is written to a file next to the log, and by
that it is removed, also by a later runner.

Options: docs.docker.com, `docker container run`; podman and nerdctl take the same.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from configs.errors import SpecsweepError

RUNTIMES = ("docker", "podman", "nerdctl")

GONE = ("no such container", "already in progress")  # of a container that is no more, or that is being removed
RECORD = "engine.container.json"  # name of the file beside the log that says which container is the engine's
ANSWER_S = 60.0  # how long a daemon may take to answer, and to remove a container that has a card's memory to give back


class ContainerUnavailable(SpecsweepError):
    """The container runtime can't be used, or a container couldn't be removed; the text says what to do."""


def is_container(words: Sequence[str]) -> bool:
    """Whether a command starts its program in a container."""
    return Path(words[0]).name in RUNTIMES and "run" in words


def require(words: Sequence[str]) -> None:
    """Ask the runtime whether it works; the engine's start checks the image, which it may have to fetch.

    Raises ContainerUnavailable: it doesn't answer, or the command chooses cards in a way that nobody outside it sees.
    """
    chosen = next((word for word, value in pairwise((*words, "")) if _chooses_cards(word, value)), None)
    if chosen is not None:
        raise ContainerUnavailable(
            f"{chosen!r} in the engine's command chooses cards, and rows would name another one: write `--gpus all`, "
            "and choose with CUDA_VISIBLE_DEVICES, which goes along"
        )
    done = _ask(words[0], "version")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ContainerUnavailable(f"`{words[0]} version` failed ({last[:200]}): start it, or join its group")


def _chooses_cards(word: str, following: str) -> bool:
    flag, equals, value = word.partition("=")
    if flag == "--gpus":
        return (value if equals else following) != "all"
    return flag == "--device" or word.startswith("NVIDIA_VISIBLE_DEVICES=") or "=NVIDIA_VISIBLE_DEVICES=" in word


def words_inside(
    words: Sequence[str], variables: Iterable[str], folders: Iterable[Path], workdir: Path
) -> tuple[str, ...]:
    """The command `docker run ... IMAGE` with the options that let the engine be reached, told, fed and ended.

    What the user said of network or shared memory stands. `variables` are names, with the values that the command has;
    `folders` are made where they are missing, or the daemon would make them as root.
    """
    given = {word.partition("=")[0] for word in words}
    ours = [f"--cidfile={workdir / 'engine.cid'}"]
    if not given & {"--network", "--net"}:
        ours.append("--network=host")
    if not given & {"--ipc", "--shm-size"}:
        ours.append("--ipc=host")  # vLLM's processes share tensors; docker's default of 64 MiB is too little
    if "--rm" not in given:
        ours.append("--rm")
    ours += [f"--env={name}" for name in dict.fromkeys(variables)]
    for folder in dict.fromkeys(folders):
        folder.mkdir(parents=True, exist_ok=True)
        ours.append(f"--volume={folder}:{folder}")
    after = list(words).index("run") + 1
    return (*words[:after], *ours, *words[after:])


def record(words: Sequence[str], workdir: Path) -> None:
    """Write down, before it starts, how the engine's container can be removed; does nothing where there is none."""
    if is_container(words):
        workdir.mkdir(parents=True, exist_ok=True)
        (workdir / "engine.cid").unlink(missing_ok=True)  # the runtime refuses to overwrite it
        (workdir / RECORD).write_text(json.dumps({"runtime": words[0]}), encoding="utf-8")


def remove(workdir: Path) -> bool:
    """Remove the recorded container, if there is one: True. Raises ContainerUnavailable: the runtime refuses."""
    file, cid_file = workdir / RECORD, workdir / "engine.cid"
    if not file.exists():
        return False
    cid = cid_file.read_text(encoding="ascii").strip() if cid_file.exists() else ""
    if cid:
        runtime = str(json.loads(file.read_text(encoding="utf-8"))["runtime"])
        done = _ask(runtime, "rm", "--force", cid)
        if done.returncode != 0 and not any(gone in done.stderr.lower() for gone in GONE):
            raise ContainerUnavailable(
                f"the engine's container is still there ({done.stderr.strip()[-200:]}): "
                f"run `{runtime} rm -f {cid[:12]}`"
            )
    cid_file.unlink(missing_ok=True)
    file.unlink()
    return bool(cid)


def remove_all(folder: Path) -> int:
    """Remove every container that is recorded anywhere below a folder; how many were there."""
    return sum(remove(file.parent) for file in sorted(folder.rglob(RECORD)))


def _ask(runtime: str, *words: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which(runtime)
    if found is None:
        raise ContainerUnavailable(f"no {runtime!r} in any folder of the PATH: install it")
    try:
        return subprocess.run(
            [found, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ContainerUnavailable(f"`{runtime} {' '.join(words)}` gave no answer in {ANSWER_S:g} s") from None
