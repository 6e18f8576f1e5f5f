"""The SkyPilot home of a lab: configuration, catalogues and credentials that know only the lab's cloud."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import yaml

from lab.places import CODE, Places

CATALOGS = CODE / "catalogs"
"""Small catalogues with made-up prices, in SkyPilot's own format; it never fetches a file that is there already."""

ACCESS_KEY = "lab"
"""Access key and secret of the lab's account."""


def user_hash(root: Path) -> str:
    """SkyPilot's name for a user of this machine: part of its names on the cloud and of its ssh control sockets."""
    return hashlib.sha256(str(root).encode()).hexdigest()[:8]


def make_home(places: Places, lab_python: Path) -> None:
    """Write the SkyPilot home of a lab.

    Args:
        places: the lab's.
        lab_python: runs the ssh proxy command; any interpreter will do.
    """
    sky, aws = places.home / ".sky", places.home / ".aws"
    shutil.copytree(CATALOGS, sky / "catalogs")
    aws.mkdir()
    proxy = f"{lab_python} -I -S {CODE / 'bodies' / 'connect.py'} {places.by_ip} %h"
    (sky / "config.yaml").write_text(yaml.safe_dump({"aws": {"ssh_proxy_command": proxy}}), encoding="utf-8")
    (sky / "user_hash").write_text(user_hash(places.root), encoding="ascii")
    keys = f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {ACCESS_KEY}\n"
    (aws / "credentials").write_text(keys, encoding="ascii")
    (aws / "config").write_text("[default]\nregion = us-east-1\n", encoding="ascii")
