"""The hub on this machine: where its files are kept, of which commit, and its token for a child that reads the hub.

As in huggingface_hub, "Environment variables". It takes HF_TOKEN, else the file that HF_TOKEN_PATH names; only the file
is hidden from others who can see the process.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from configs.secrets import TOKEN, secret

HUB, ANSWER_S = "https://huggingface.co", 3.0
_COMMIT = re.compile(r"[0-9a-f]{40}")


def hub_home(env: Mapping[str, str]) -> Path:
    """HF_HOME, else a folder of the user's cache: the token that `hf auth login` leaves, and the files."""
    cache = env.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(env.get("HF_HOME") or f"{cache}/huggingface").expanduser()


def hub_cache(env: Mapping[str, str]) -> Path:
    """HF_HUB_CACHE, else `hub` in the hub's home."""
    said = env.get("HF_HUB_CACHE")
    return Path(said).expanduser() if said else hub_home(env) / "hub"


def resolved_commit(hub_id: str, revision: str | None, env: Mapping[str, str]) -> str | None:
    """The commit behind a branch, tag or commit (None: the default branch); None where the cache doesn't tell.

    Layout of the cache: huggingface_hub, "Understand caching": `models--ORG--NAME/refs/REVISION` holds the commit that
    a branch or tag was resolved to, `snapshots/COMMIT/` its files. `env` is the engine's.
    """
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    folder = repository(hub_id, env)
    ref = folder / "refs" / (revision or "main")
    if ref.is_file():
        return ref.read_text(encoding="ascii").strip()
    snapshots = [path.name for path in folder.glob("snapshots/*")]
    return snapshots[0] if len(snapshots) == 1 else None


@cache
def hub_answers() -> bool:
    """Whether the hub (HF_ENDPOINT) can be reached from here; with a proxy that is its matter."""
    if os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
        return True
    try:
        place = urlsplit(os.environ.get("HF_ENDPOINT") or HUB)
        port = place.port or (80 if place.scheme == "http" else 443)
        with socket.create_connection((place.hostname or "", port), timeout=ANSWER_S):
            return bool(place.hostname)
    except (OSError, ValueError):  # not there, or no address
        return False


def repository(hub_id: str, env: Mapping[str, str]) -> Path:
    """The folder of a model's repository in that cache."""
    return hub_cache(env) / f"models--{hub_id.replace('/', '--')}"


def token_variables(folder: Path) -> dict[str, str]:
    """What to add to a child's environment, if there is a token: its file in `folder` has to go with the child."""
    token = secret(TOKEN)
    if token is None:
        return {}
    path = folder / "hub-token"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(token)
    return {"HF_TOKEN_PATH": str(path)}
