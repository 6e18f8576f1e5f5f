"""SkyPilot's home: of a user's home full of keys no node gets any, and one that was made with too many is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.command_lines import run_python

PROFILE = "aws_access_key_id=K\naws_secret_access_key=S\n"

KEYS = {
    ".aws/credentials": f"[default]\n{PROFILE}[nebius]\n{PROFILE}",
    ".aws/config": "[profile nebius]\nendpoint_url=https://storage.nebius.cloud\n",
    ".config/gcloud/application_default_credentials.json": "{}",
    ".config/gcloud/credentials.db": "x",
    ".azure/azureProfile.json": "{}",
    ".kube/config": "x",
    ".cloudflare/r2.credentials": f"[r2]\n{PROFILE}",
    ".cloudflare/accountid": "x",
    ".coreweave/cw.credentials": f"[cw]\n{PROFILE}",
    ".coreweave/cw.config": "[profile cw]\nendpoint_url=https://cwobject.com\n",
    ".vastdata/vastdata.credentials": f"[vastdata]\n{PROFILE}",
    ".vastdata/vastdata.config": "[profile vastdata]\nendpoint_url=https://vast\n",
    ".lambda_cloud/lambda_keys": "api_key = X\n",
    ".runpod/config.toml": "[default]\napi_key='X'\n",
    ".nebius/NEBIUS_IAM_TOKEN.txt": "x",
    ".nebius/credentials.json": "{}",
    ".nebius/NEBIUS_TENANT_ID.txt": "x",
    ".oci/s3.credentials": f"[oci]\n{PROFILE}",
    ".config/vastai/vast_api_key": "x",
    ".config/mithril/config.yaml": "{}",
    ".config/doctl/config.yaml": "{}",
    ".hyperbolic/api_key": "x",
    ".prime/config.json": "{}",
    ".cache/huggingface/token": "hf_x",
    ".sky/config.yaml": "aws: {vpc_name: mine}\n",
}
"""One file or more of each cloud and store whose keys SkyPilot knows."""

UPLOADED = """
import json, os
from pathlib import Path
from flows.clusters.skypilot import home
home.enter()
from sky import check, skypilot_config
from sky.utils.registry import CLOUD_REGISTRY
def identity(name):
    return skypilot_config.get_effective_workspace_region_config(
        cloud=name, region=None, keys=("remote_identity",), default_value=None)
excluded = [cloud for name, cloud in CLOUD_REGISTRY.items() if identity(name) == "NO_UPLOAD"]
print(json.dumps({
    "uploaded": sorted(check.get_cloud_credential_file_mounts(excluded)),
    "found": [name for name in %r if (Path.home() / name).exists()],
    "vpc": skypilot_config.get_nested(("aws", "vpc_name"), None),
    "port": os.environ.get("SKYPILOT_API_SERVER_LOCAL_PORT"),
}))
"""

ASKED = """
import json
from flows.clusters.skypilot.travelling import KeysWouldTravel, travelling
try:
    print(json.dumps([travelling(%r), None]))
except KeysWouldTravel as error:
    print(json.dumps([None, str(error)]))
"""


def put_keys(home: Path, *names: str) -> Path:
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(KEYS[name])
    return home


def said(program: str, **env: str) -> Any:
    """What a program of ours prints last, in an environment without a cloud, a token or a home of SkyPilot's."""
    named = ("AWS_", "GS_", "GOOGLE_", "SKYPILOT_", "SPECSWEEP_", "HF_", "HUGGING", "XDG_CONFIG", "KUBECONFIG")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(named)}
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    done = run_python("-c", program, env=clean | {"XDG_CACHE_HOME": cache} | env)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow(6)
def test_of_a_home_full_of_keys_no_node_gets_any_and_skypilot_has_those_that_rent(tmp_path: Path) -> None:
    user = put_keys(tmp_path / "user", *KEYS)
    answer = said(UPLOADED % list(KEYS), HOME=str(user), XDG_CONFIG_HOME=str(user / ".config"))
    assert answer["uploaded"] == []
    assert {".aws/credentials", ".kube/config", ".config/gcloud/credentials.db"} <= set(answer["found"])
    assert not [name for name in answer["found"] if name.startswith((".cloudflare", ".lambda", ".nebius", ".cache"))]
    assert answer["vpc"] == "mine", "the user's own configuration counts"
    assert answer["port"] != "46580", "the user's own API server sees all of them"


@pytest.mark.slow(7)
@pytest.mark.parametrize(
    ("names", "others"),
    [
        ([".lambda_cloud/lambda_keys", ".aws/credentials"], []),
        ([".lambda_cloud/lambda_keys", ".runpod/config.toml"], ["~/.runpod/config.toml"]),
        (
            [".lambda_cloud/lambda_keys", ".cloudflare/r2.credentials", ".cloudflare/accountid"],
            ["~/.cloudflare/accountid", "~/.cloudflare/r2.credentials"],
        ),
    ],
)
def test_in_a_home_of_the_users_own_a_cloud_gets_its_key_and_another_ones_is_refused(
    tmp_path: Path, names: list[str], others: list[str]
) -> None:
    home = put_keys(tmp_path / "home", *names)
    own, refused = said(ASKED % ["lambda"], SPECSWEEP_SKY_HOME=str(home))
    if not others:
        assert own == ["~/.lambda_cloud/lambda_keys to lambda"]
        return
    assert refused.startswith(f"nodes of lambda would get {', '.join(others)}:") and str(home) in refused


def test_our_command_of_skypilot_hands_its_server_no_token_and_asks_no_other_server(tmp_path: Path) -> None:
    (tmp_path / "sky").write_text("#!/bin/sh\nenv\n")
    (tmp_path / "sky").chmod(0o755)
    env = os.environ | {"HF_TOKEN": "hf_x", "GS_SECRET_ACCESS_KEY": "x", "SPECSWEEP_SKY_HOME": str(tmp_path / "home")}
    env.pop("SKYPILOT_API_SERVER_LOCAL_PORT", None)
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    done = run_python("-m", "flows.clusters.skypilot.home", "status", env=env)
    given = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert not given.keys() & {"HF_TOKEN", "GS_SECRET_ACCESS_KEY"}, given
    assert given["SKYPILOT_API_SERVER_LOCAL_PORT"] != "46580", "the user's own server has all of the user's keys"
