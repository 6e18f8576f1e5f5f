"""Which commit of a hub's repository was really served, read off the cache that the engine filled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tasks.host.hub_cache import hub_cache

_COMMIT = re.compile(r"[0-9a-f]{40}")


def resolved_commit(hub_id: str, revision: str | None, env: Mapping[str, str]) -> str | None:
    """The commit behind a revision; None where the cache doesn't tell.

    Layout of the cache: huggingface_hub, "Understand caching": `models--ORG--NAME/refs/REVISION` holds the commit that
    a branch or tag was resolved to, `snapshots/COMMIT/` its files.

    Args:
        hub_id: the repository.
        revision: branch, tag or commit that was asked for; None: the default branch.
        env: of the engine.
    """
    if revision is not None and _COMMIT.fullmatch(revision):
        return revision
    folder = repository(hub_id, env)
    ref = folder / "refs" / (revision or "main")
    if ref.is_file():
        return ref.read_text(encoding="ascii").strip()
    snapshots = [path.name for path in folder.glob("snapshots/*")]
    return snapshots[0] if len(snapshots) == 1 else None


def repository(hub_id: str, env: Mapping[str, str]) -> Path:
    """The folder of a model's repository in that cache."""
    return hub_cache(env) / f"models--{hub_id.replace('/', '--')}"
