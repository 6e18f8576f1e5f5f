"""What a machine does at its first boot, before SkyPilot can reach it: it starts the timer of its own end.

SkyPilot 0.14.1 brings commands to a first boot on AWS only (`aws.post_provision_runcmd`, run by cloud-init), and reads
them from its configuration. So ours is laid over the user's, for the requests of this process.
"""

from __future__ import annotations

import base64
import os
import tempfile
import zlib
from pathlib import Path

import yaml

from flows.clusters.skypilot.server import sdk
from tasks.host import time_to_live

TIMED_CLOUDS = ("aws",)
"""Clouds whose machines get the timer."""

KEYS = ("aws", "post_provision_runcmd")

LOG = "/run/specsweep-time-to-live.log"
"""On the machine: what the timer said."""


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
    with tempfile.NamedTemporaryFile(
        "w", suffix=".yaml", encoding="utf-8"
    ) as file:  # read once, by the next line but two
        yaml.safe_dump(merged, file)
        file.flush()
        os.environ[variable] = file.name
        skypilot_config.reload_config()
    if named is None:
        del os.environ[variable]
    else:
        os.environ[variable] = named
