"""SkyPilot's word about the tasks of sky/, asked once per session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CANARIES = {
    "HF_TOKEN": "hf_canary0123456789",
    "AWS_ACCESS_KEY_ID": "AKIACANARY0123456789",
    "AWS_SECRET_ACCESS_KEY": "aws/canary+0123456789",
}
"""Secrets that the probing process has, and that may show up nowhere."""


@pytest.fixture(scope="session")
def asked(repo_root: Path) -> dict[str, Any]:
    unset = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SKYPILOT_", "GS_"))}
    done = subprocess.run(
        [sys.executable, "-m", "tests.flows.clusters.skypilot.catalogue_probe"],
        cwd=repo_root,
        env=unset | CANARIES,
        text=True,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    document["printed"] = done.stderr + "\n".join(done.stdout.splitlines()[:-1])
    return document
