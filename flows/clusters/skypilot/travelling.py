"""Which files with keys SkyPilot would copy to nodes: its own code is asked, in the home that its API server has.

As a program it answers for the clouds that are named, or for the enabled ones, in one JSON document.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from flows.clusters.skypilot import home as sky_home
from flows.clusters.skypilot.api import enabled_clouds
from flows.clusters.skypilot.server import SkyUnavailable

ANSWER_S = 120.0  # importing SkyPilot takes seconds, and asking all clouds about credentials some more


class KeysWouldTravel(SpecsweepError):
    """Nodes would get keys that they don't need; the text has the files and the remedy."""


def travelling(clouds: Iterable[str]) -> list[str]:
    """The files with a cloud's own key that SkyPilot of this machine copies to its nodes; by default of enabled clouds.

    Raises:
        KeysWouldTravel: it would copy others, too.
        SkyUnavailable: it could not say.
    """
    argv = [sys.executable, "-m", "flows.clusters.skypilot.travelling", *sorted(clouds)]
    env = sky_home.without_tokens(os.environ)  # as the API server: SkyPilot writes a token that it sees to a file
    try:
        done = subprocess.run(argv, cwd=ROOT, env=env, text=True, capture_output=True, timeout=ANSWER_S, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        printed = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""  # else it may be bytes
        said = (printed or str(error)).strip().splitlines()[-1:]
        raise SkyUnavailable(
            f"SkyPilot can't say which keys it would copy to nodes: {' '.join(said)}; "
            "remedy: see what `bin/sky check` waits for"
        ) from error
    if bad := [f"nodes of {cloud} would get {', '.join(others)}" for cloud, (_, others) in found.items() if others]:
        home = os.environ.get(sky_home.HOME_VARIABLE)
        remedy = (
            f"leave only the key of the sweep's cloud in {home} ({sky_home.HOME_VARIABLE})"
            if home
            else "take `remote_identity: LOCAL_CREDENTIALS` of other clouds out of ~/.sky/config.yaml"
        )
        raise KeysWouldTravel(f"{'; '.join(bad)}: keys that they don't need; remedy: {remedy}")
    return [f"{', '.join(own)} to {cloud}" for cloud, (own, _) in found.items() if own]


def main() -> None:
    """Answer as `sky.backends.backend_utils.write_cluster_config` of 0.14.1 decides it."""
    sky_home.enter()
    from sky.utils import schemas
    from sky.utils.registry import CLOUD_REGISTRY

    from sky import check, skypilot_config

    def identity(name: str) -> object:
        asked = {"cloud": name, "region": None, "keys": ("remote_identity",), "default_value": None}
        return skypilot_config.get_effective_workspace_region_config(**asked)

    hidden = {name for name in CLOUD_REGISTRY if identity(name) == "NO_UPLOAD"}
    found: dict[str, tuple[list[str], list[str]]] = {}
    for asked in sys.argv[1:] or [str(cloud).lower() for cloud in enabled_clouds()]:
        cloud = CLOUD_REGISTRY.from_str(asked)
        name = next(name for name, each in CLOUD_REGISTRY.items() if each is cloud)
        has_role = (identity(name) or schemas.get_default_remote_identity(name)) != "LOCAL_CREDENTIALS"
        rented = {"kubernetes", "ssh"} if name in ("kubernetes", "ssh") else {name}
        without = hidden | (rented if has_role else set())
        copied = set(check.get_cloud_credential_file_mounts([CLOUD_REGISTRY[each] for each in without]))
        own = set() if name in without else set(cloud.get_credential_file_mounts())
        found[asked] = (sorted(copied & own), sorted(copied - own))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
