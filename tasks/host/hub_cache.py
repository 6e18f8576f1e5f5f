"""Where the hub's files are kept on this machine (huggingface_hub, "Environment variables")."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def hub_home(env: Mapping[str, str]) -> Path:
    """HF_HOME, else a folder of the user's cache: the token that `hf auth login` leaves, and the files."""
    cache = env.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(env.get("HF_HOME") or f"{cache}/huggingface").expanduser()


def hub_cache(env: Mapping[str, str]) -> Path:
    """HF_HUB_CACHE, else `hub` in the hub's home."""
    said = env.get("HF_HUB_CACHE")
    return Path(said).expanduser() if said else hub_home(env) / "hub"
