"""SkyPilot runs in a home of its own, which holds no key that it would copy to nodes.

SkyPilot 0.14.1 copies to every node each file with keys that it knows and finds in its home: those of all clouds and of
all stores (`sky.check.get_cloud_credential_file_mounts`). So its home has links to what is named here, and to nothing
else of the user's. Import `sky` only after `enter()`: it reads its home, its configuration and the API server's address
at import. As a program this is SkyPilot's own command in that home: `bin/sky`.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from configs.secrets import TOKEN

HOME_VARIABLE = "SPECSWEEP_SKY_HOME"  # names another home, in which nothing is linked
USER_VARIABLE = "SPECSWEEP_USER_HOME"  # the user's own home, for the children of a process that has entered ours
LONGEST_TMPDIR = 75  # characters: a socket's path may have 107, with `/pymp-12345678/listener-12345678` below it

PORT_VARIABLE, PORT = "SKYPILOT_API_SERVER_LOCAL_PORT", "46590"
"""SkyPilot's variable for the port of its API server, and that of our own home: the user's own server has 46580."""

MORE_PORTS = 2000  # above `PORT`, for the servers of other homes: each has the keys of its own home only

GLOBAL_VARIABLE, PROJECT_VARIABLE = "SKYPILOT_GLOBAL_CONFIG", "SKYPILOT_PROJECT_CONFIG"
"""SkyPilot's variables for its two configurations. The second lies on top, and goes along with each request."""

OURS = "specsweep.yaml"  # name of our project configuration, beside the user's own in `.sky`

WITH_A_ROLE = {
    "aws": (".aws",),
    "gcp": (".config/gcloud",),
    "azure": (".azure",),
    "kubernetes": (".kube",),
    "ssh": (".ssh",),
}
"""Clouds whose machines have a role of their own, with which they end themselves, and where the user's keys lie that
rent there. None of them has to be copied to any node. Machines of other clouds end themselves with the user's key. To
rent there, give SkyPilot another home, with that cloud's key only."""

ALSO = (".gitconfig", ".slurm", ".sky/catalogs", ".sky/config.yaml", ".sky/cookies.txt", ".sky/ssh_node_pools.yaml")
"""What else SkyPilot needs of the user's; it copies none of it."""

COPIES_ANOTHERS = "nebius"  # SkyPilot copies ~/.aws/credentials for it, to any node, if a profile in there is named so

NOT_FOR_SKYPILOT = (TOKEN, "HUGGING_FACE_HUB_TOKEN", "GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY")
"""Not for its server's environment: it sends the token to Hugging Face at each launch, and copies it to each node."""

LEAD_ELSEWHERE = ("XDG_CONFIG_HOME", "OCI_CONFIG")  # variables by which SkyPilot finds keys outside its home


def environment() -> dict[str, str]:
    """Variables of a process whose SkyPilot has a home of its own."""
    user = user_home()
    ours = user / ".local/share/specsweep/sky"
    home = Path(os.environ.get(HOME_VARIABLE) or ours).absolute()
    variables = {
        "HOME": str(home),
        USER_VARIABLE: str(user),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(user / ".cache"),  # our environments stay there
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        "SPT_NOENV": "1",  # process titles leave /proc/<pid>/environ alone: the lab finds its processes by it
    }
    if not os.environ.get(PORT_VARIABLE) and home.resolve() != user.resolve():  # there the user's own server may live
        variables[PORT_VARIABLE] = PORT if home.resolve() == ours.resolve() else _port_of(home)
    return variables


def _port_of(home: Path) -> str:
    """One port for each home: a server outlives its run, and would hand the keys of its home to nodes of another."""
    number = int(hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:8], 16)
    return str(int(PORT) + 1 + number % MORE_PORTS)


def user_home() -> Path:
    """The user's own home, also in a process that has entered SkyPilot's."""
    return Path(os.environ.get(USER_VARIABLE) or Path.home()).absolute()


def server_environment() -> dict[str, str]:
    """The same for the API server, which leaves temporary folders when it is killed: they go into that home, too.

    It runs `aws` many times a launch: the one of our pins, which starts faster than through a version manager's shim.
    """
    variables = environment()
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    folder = Path(variables["HOME"]) / ".sky" / "tmp"
    if len(str(folder)) <= LONGEST_TMPDIR:
        folder.mkdir(parents=True, exist_ok=True)
        variables["TMPDIR"] = str(folder)
    return variables


def without_tokens(env: Mapping[str, str]) -> dict[str, str]:
    """An environment for what may become SkyPilot's API server."""
    return {name: value for name, value in env.items() if name not in NOT_FOR_SKYPILOT}


def enter() -> None:
    """Set `environment()` here, and, unless the user's two say otherwise, that no node gets the user's own keys."""
    user, hidden = user_home(), list(WITH_A_ROLE)
    os.environ.update(environment())
    for variable in LEAD_ELSEWHERE:
        os.environ.pop(variable, None)
    if not os.environ.get(HOME_VARIABLE):
        hidden.append(COPIES_ANOTHERS)
        for name in [*ALSO, *(name for names in WITH_A_ROLE.values() for name in names)]:
            _link(user / name, Path.home() / name)
    path = Path.home() / ".sky" / OURS
    if os.environ.get(PROJECT_VARIABLE) != str(path):
        theirs = _read(os.environ.get(PROJECT_VARIABLE) or ".sky.yaml")
        global_one = _read(os.environ.get(GLOBAL_VARIABLE) or "~/.sky/config.yaml")
        merged = dict(theirs)
        for cloud in hidden:
            if not any("remote_identity" in (config.get(cloud) or {}) for config in (global_one, theirs)):
                merged[cloud] = {**(merged.get(cloud) or {}), "remote_identity": "NO_UPLOAD"}
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.touch(mode=0o600)
        temporary.write_text(yaml.safe_dump(merged), encoding="utf-8")
        temporary.rename(path)
        os.environ[PROJECT_VARIABLE] = str(path)


def _link(source: Path, link: Path) -> None:
    if source.is_dir() and link.is_dir() and not link.is_symlink():  # SkyPilot made it before the user had one
        for each in source.iterdir():
            _link(each, link / each.name)
    elif source.exists() and not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():  # to what is gone
            link.unlink(missing_ok=True)
        with suppress(FileExistsError):  # another process has just made it
            link.symlink_to(source)


def _read(path: str) -> dict[str, Any]:
    """A configuration of SkyPilot's; what is wrong with it SkyPilot itself says best."""
    file = Path(path).expanduser()
    config = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None
    return config if isinstance(config, dict) else {}


if __name__ == "__main__":
    enter()
    os.execvpe("sky", ["sky", *sys.argv[1:]], without_tokens(os.environ))  # many of its commands start the server
