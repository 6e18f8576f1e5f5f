"""A new Prefect home's database, copied: Prefect takes a hundred migrations to make one, half of its server's start."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from flows.terminal.prefect_server.command import output_of
from tasks.host.environment_spec import user_cache

DATABASE = "prefect.db"
"""Its name in a home."""


def lay_database(home: Path, env: Mapping[str, str]) -> None:
    """Give a home that has no database an empty one of the installed Prefect's newest schema.

    The first home of this user and version costs a run of Prefect's own `database upgrade`, each further one a copy of
    a megabyte. A server makes sure of the schema itself, and finds nothing to do.

    Args:
        home: Prefect's.
        env: how Prefect is set up, its home included.

    Raises:
        CommandFailed: Prefect can't make one.
    """
    if (home / DATABASE).exists():
        return
    template = user_cache() / "prefect" / f"{version('prefect')}.db"
    template.parent.mkdir(parents=True, exist_ok=True)
    with template.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not template.exists():
            _make(template, env)
    with TemporaryDirectory(dir=home) as folder:
        Path(shutil.copy(template, folder)).replace(home / DATABASE)


def _make(template: Path, env: Mapping[str, str]) -> None:
    with TemporaryDirectory(dir=template.parent) as folder:
        output_of(["-m", "prefect", "server", "database", "upgrade", "-y"], dict(env) | {"PREFECT_HOME": folder})
        (Path(folder) / DATABASE).replace(template)
