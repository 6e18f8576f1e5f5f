"""SkyPilot's home: of a user's home full of keys no node gets any, and one that was made with too many is refused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from flows.clusters.skypilot.home import HOME_VARIABLE, PORT, PORT_VARIABLE, USER_VARIABLE, environment
from flows.clusters.skypilot.server import SkyUnavailable
from flows.clusters.skypilot.travelling import travelling
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


ENTERED = """
import json, os
from pathlib import Path
from flows.clusters.skypilot import home
home.enter()
print(json.dumps([str(home.user_home()), {path.name: path.read_text() for path in (Path.home() / ".ssh").iterdir()}]))
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


def test_a_server_outlives_its_run_so_each_home_has_its_own_and_the_users_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(USER_VARIABLE, str(tmp_path))
    monkeypatch.delenv(PORT_VARIABLE, raising=False)

    def port(home: str | Path) -> str | None:
        monkeypatch.setenv(HOME_VARIABLE, str(home))
        return environment().get(PORT_VARIABLE)

    (tmp_path / "link").symlink_to("/srv/sky-lambda")
    ours, lambdas, runpods = port(""), port("/srv/sky-lambda"), port("/srv/sky-runpod")
    assert ours == PORT and len({ours, lambdas, runpods, "46580"}) == 4
    assert port("/srv/sky-lambda/") == port(tmp_path / "link") == lambdas, "one home, one server"
    assert port(tmp_path / ".local/share/specsweep/sky") == ours
    assert port(tmp_path) is None, "a second server in ~/.sky would delete the requests of the user's own"
    monkeypatch.setenv(PORT_VARIABLE, "1234")
    assert port("/srv/sky-lambda") is None, "what is set stays"


def test_keys_that_the_user_made_later_are_linked_into_a_folder_that_skypilot_made_first(tmp_path: Path) -> None:
    user, ours = tmp_path / "user", tmp_path / "user/.local/share/specsweep/sky/.ssh"
    for folder, names in ((user / ".ssh", ("config", "id_pool")), (ours, ("config",))):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_text(folder.parent.name)
    assert said(ENTERED, HOME=str(user)) == [str(user), {"config": "sky", "id_pool": "user"}]


def test_in_a_named_home_it_is_still_known_where_the_user_lives(tmp_path: Path) -> None:
    (tmp_path / "named" / ".ssh").mkdir(parents=True)
    assert said(ENTERED, HOME=str(tmp_path), SPECSWEEP_SKY_HOME=str(tmp_path / "named")) == [str(tmp_path), {}]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            subprocess.TimeoutExpired(["x"], 120.0, stderr=b"Traceback"),
            r"timed out after .* seconds; remedy: .*check",
        ),
        (subprocess.CalledProcessError(1, ["x"], stderr="Traceback\nNo: module"), "nodes: No: module; remedy: .*check"),
    ],
)
def test_where_skypilot_cannot_say_what_it_copies_that_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def run(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SkyUnavailable, match=words):
        travelling(["aws"])
