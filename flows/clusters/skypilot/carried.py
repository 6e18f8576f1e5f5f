"""What goes along to a rented machine: secrets, in a file that only we can read, and the timer of its own end.

SkyPilot writes a task's `secrets` and `envs` into the job's script. While the job is submitted, that script is visible
in the arguments of `ssh` here and of `bash` there. A file is copied with its mode, and `bin/node run` reads and removes
it.

The timer starts at the first boot, before SkyPilot can reach the machine. SkyPilot 0.14.1 brings commands to a first
boot on AWS only (`aws.post_provision_runcmd`, run by cloud-init), and reads them from its configuration. So ours is
laid over the user's, for the requests of this process.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import tempfile
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from configs import secrets
from configs.secrets import FOR_NODES
from flows.clusters.skypilot.server import sdk
from tasks.engine.machine import state_dir
from tasks.host import time_to_live

ON_THE_NODE = "~/.specsweep-secrets"  # where `bin/node run` finds them
FOR_SKYPILOT = "SKYPILOT_"  # begins names of secrets that SkyPilot itself needs, for a registry: they go its own way


def values_of(names: tuple[str, ...], store_url: str) -> dict[str, str]:
    """The secrets that a node of this store gets: those of the names that are set here, nodes' own before the user's.

    Where a store's keys lie in a file of the user's, they go along by value: no file of the user's is copied.
    """
    found, known = dict[str, str](), dict[str, str]()
    for name in names:
        has_own = any(each.startswith(FOR_NODES + name.partition("_")[0]) for each in os.environ)
        value = os.environ.get(FOR_NODES + name if has_own else name)
        if value and not name.startswith(FOR_SKYPILOT):
            found[name] = value
            known[FOR_NODES + name if has_own else name] = value
    if urlsplit(store_url).scheme == "s3" and "AWS_ACCESS_KEY_ID" in names and "AWS_ACCESS_KEY_ID" not in found:
        of_files = _keys_of_files()
        found, known = found | of_files, known | of_files
    secrets.hold(known)
    return found


@contextmanager
def carried(values: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The `file_mounts` that bring secrets to a node, within the block; what a killed process left is removed."""
    folder = state_dir() / "secrets"
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    path = folder / uuid.uuid4().hex
    with folder.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # nobody else makes or removes a file here meanwhile: ours is not locked yet
        _remove_left(folder)
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")
        fcntl.flock(file, fcntl.LOCK_EX)
    with file:
        try:
            json.dump(dict(values), file)
            file.flush()
            yield {ON_THE_NODE: str(path)} if values else {}
        finally:
            path.unlink(missing_ok=True)


def _remove_left(folder: Path) -> None:
    for path in folder.iterdir():
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
        except (BlockingIOError, FileNotFoundError):
            continue  # a launch that goes on, or that has just ended


def _keys_of_files() -> dict[str, str]:
    """The keys in ~/.aws, which don't expire as a login's do; none if there are none."""
    from flows.clusters.clouds.aws import signed_in

    _, credentials = signed_in()
    if credentials is None or credentials.method not in ("shared-credentials-file", "config-file"):
        return {}
    keys = (credentials.access_key, credentials.secret_key, credentials.token)
    return {name: value for name, value in zip(secrets.STORE_KEYS, keys, strict=False) if value}


TIMED_CLOUDS = ("aws",)  # clouds whose machines get the timer
KEYS = ("aws", "post_provision_runcmd")
LOG = "/run/specsweep-time-to-live.log"  # on the machine: what the timer said


def timer_command(longest_s: float) -> str:
    """One line of shell that starts the timer; SkyPilot writes it into YAML as it stands, so it is one plain scalar."""
    source = base64.b64encode(zlib.compress(Path(time_to_live.__file__).read_bytes(), 9)).decode("ascii")
    program = f"import base64,zlib;exec(zlib.decompress(base64.b64decode('{source}')))"
    return f'nohup python3 -c "{program}" {longest_s:.0f} >{LOG} 2>&1 </dev/null &'


def give_time_to_live(longest_s: float) -> None:
    """Have every machine that this process rents on AWS end itself when it is not renewed for so many seconds."""
    sdk()
    from sky import skypilot_config

    ours = timer_command(longest_s)
    theirs = [line for line in skypilot_config.get_nested(KEYS, None) or [] if LOG not in line]
    variable, merged = skypilot_config.ENV_VAR_PROJECT_CONFIG, skypilot_config.set_nested(KEYS, [*theirs, ours])
    named = os.environ.get(variable)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:  # read once, right below
        yaml.safe_dump(merged, file)
        file.flush()
        os.environ[variable] = file.name
        skypilot_config.reload_config()
    if named is None:
        del os.environ[variable]
    else:
        os.environ[variable] = named
