"""The contract with SkyPilot: its own optimizer and catalogue, on CSV files of our own, offline, without a server."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from configs.checkout import ROOT
from flows.forecast.estimates import DOWNLOAD_GB_S
from tests.command_lines import run_python

TASKS = sorted(path.stem for path in (ROOT / "sky").glob("*.yaml") if path.stem != "slurm")
"""Tasks that are rented by the hour; machines of one's own are in no catalogue."""

CANARIES = {
    "HF_TOKEN": "hf_canary0123456789",
    "AWS_ACCESS_KEY_ID": "AKIACANARY0123456789",
    "AWS_SECRET_ACCESS_KEY": "aws/canary+0123456789",
}
"""Secrets that the probing process has, and that may show up nowhere."""


@pytest.fixture(scope="session")
def asked() -> dict[str, Any]:
    """SkyPilot's word about the tasks of sky/, asked once."""
    unset = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SKYPILOT_", "GS_"))}
    done = run_python("-m", "tests.flows.clusters.skypilot.catalogue_probe", env=unset | CANARIES)
    assert done.returncode == 0, done.stderr[-2000:]
    *printed, said = done.stdout.splitlines()
    document: dict[str, Any] = json.loads(said)
    return document | {"printed": done.stderr + "\n".join(printed)}


@pytest.fixture(params=TASKS)
def task(asked: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = asked["tasks"][request.param]
    return found


@pytest.mark.slow(6)
def test_sky_holds_yaml_only_and_every_one_is_asked_about(asked: dict[str, Any]) -> None:
    assert not list((ROOT / "sky").glob("**/*.py"))  # they would shadow the package
    assert sorted(asked["tasks"]) == TASKS and {"h100-spot", "lab"} <= set(TASKS)


TWO_CARDS = "h100-x2"


@pytest.mark.slow(1)
@pytest.mark.parametrize("name", sorted({*TASKS} - {TWO_CARDS}))
def test_the_optimizer_picks_a_spot_h100(asked: dict[str, Any], name: str) -> None:
    chosen = asked["tasks"][name]["chosen"]
    assert chosen["spot"] and chosen["accelerators"] == {"H100": 1} and chosen["instance_type"] == "p5.4xlarge"
    assert (chosen["cloud"], chosen["zone"], chosen["price_usd_h"]) == ("aws", "us-east-1a", 2.25)


@pytest.mark.slow(1)
def test_two_h100s_are_one_machine(asked: dict[str, Any]) -> None:
    chosen = asked["tasks"][TWO_CARDS]["chosen"]
    assert chosen["spot"] and (chosen["accelerators"], chosen["instance_type"]) == ({"H100": 2}, "a3-highgpu-2g")


@pytest.mark.slow(1)
def test_on_google_it_is_the_machine_with_one_h100(asked: dict[str, Any]) -> None:
    chosen = asked["gcp_only"]
    assert (chosen["cloud"], chosen["instance_type"], chosen["spot"]) == ("gcp", "a3-highgpu-1g", True)


def test_the_cheapest_offer_is_what_the_optimizer_picks(task: dict[str, Any]) -> None:
    chosen = {key: value for key, value in task["chosen"].items() if key != "accelerators"}
    assert len(chosen) == 6 and chosen.items() <= task["offers"][0].items()


@pytest.mark.slow(1)
def test_offers_are_every_zone_spot_and_on_demand_cheapest_first(asked: dict[str, Any]) -> None:
    offers = asked["tasks"]["h100-spot"]["offers"]
    prices = [offer["price_usd_h"] for offer in offers]
    assert prices == sorted(prices)
    zones = {(offer["zone"], offer["spot"]) for offer in offers}
    assert len(zones) == len(offers) == 2 * 9
    assert {"us-east-1a", "us-west-2a", "us-central1-a", "europe-west4-b"} <= {zone for zone, _ in zones}
    assert all(offer["price_source"].startswith("SkyPilot catalogue ") for offer in offers)
    assert all(f"{offer['cloud']}/vms.csv of 20" in offer["price_source"] for offer in offers)


@pytest.mark.slow(1)
def test_a_cap_leaves_out_dearer_zones_of_the_same_machine(asked: dict[str, Any]) -> None:
    assert asked["capped"] == ["aws/us-east-1a spot 2.25"]


@pytest.mark.slow(1)
def test_a_task_may_narrow_region_cloud_and_kind(asked: dict[str, Any]) -> None:
    assert {line.split()[0] for line in asked["one_region"]} == {"aws/us-east-2a", "aws/us-east-2b"}
    assert asked["on_demand_only"] and not any(" spot " in line for line in asked["on_demand_only"])


@pytest.mark.slow(1)
def test_only_enabled_clouds_are_offered(asked: dict[str, Any]) -> None:
    assert {line.split("/")[0] for line in asked["aws_only"]} == {"aws"} and asked["none"] == []


@pytest.mark.slow(1)
def test_a_cloud_without_an_offer_says_why(asked: dict[str, Any]) -> None:
    assert any(line.startswith("lambda: ") and "disk" in line.lower() for line in asked["why_none"])


def test_a_cells_task_is_pinned_to_its_offer_and_takes_itself_down(task: dict[str, Any]) -> None:
    offer, rented = task["offers"][-1], task["rented"]
    assert rented["resources"]["infra"] == f"{offer['cloud']}/{offer['region']}/{offer['zone']}"
    assert rented["resources"]["use_spot"] == offer["spot"]
    assert rented["resources"]["instance_type"] == offer["instance_type"]
    assert rented["chosen"]["zone"] == offer["zone"]
    assert rented["autostop"]["down"] is True and rented["autostop"]["idle_minutes"] > 0


@pytest.mark.slow(1)
@pytest.mark.parametrize("name", TASKS)
def test_a_job_is_named_by_its_task_and_cell(asked: dict[str, Any], name: str) -> None:
    assert asked["tasks"][name]["rented"]["name"] == f"{name}-01234567"


def test_labels_say_whose_a_cluster_is_in_words_that_every_cloud_takes(task: dict[str, Any]) -> None:
    labels = task["rented"]["resources"]["labels"]
    told = [labels[f"specsweep-{key}"] for key in ("cell", "run", "expires")]
    assert told == ["0123456789abcdef", "nightly-2026-11-20t03-00", "1800000000"]
    assert labels["specsweep"] == "ab2" * 8, "the store's id"
    assert set(labels) == {"specsweep", *(f"specsweep-{key}" for key in ("run", "cell", "owner", "expires"))}


def test_the_node_is_told_what_it_is_and_what_it_costs(task: dict[str, Any]) -> None:
    offer, envs = task["offers"][-1], task["rented"]["envs"]
    assert (envs["SPECSWEEP_STORE"], envs["SPECSWEEP_CELL"]) == ("s3://bucket/prefix", "0123456789abcdef")
    assert (envs["SPECSWEEP_ZONE"], envs["SPECSWEEP_SPOT"]) == (offer["zone"], str(int(offer["spot"])))
    assert float(envs["SPECSWEEP_PRICE_USD_H"]) == offer["price_usd_h"]
    assert (envs["SPECSWEEP_GIT_SHA"], envs["SPECSWEEP_GIT_DIRTY"]) == ("c0ffee", "1")


@pytest.mark.slow(1)
@pytest.mark.parametrize("name", sorted({*TASKS} - {"lab"}))
def test_the_disk_takes_the_weights_as_fast_as_the_forecast_assumes(asked: dict[str, Any], name: str) -> None:
    assert asked["tasks"][name]["aws_disk_mib_s"] * 1024**2 / 1e9 >= DOWNLOAD_GB_S


@pytest.mark.slow(1)
def test_a_container_task_runs_the_pinned_image_and_says_so(asked: dict[str, Any]) -> None:
    rented = asked["tasks"]["h100-spot"]["rented"]
    pinned = "vllm/vllm-openai@sha256:" + "ab" * 32
    assert list(rented["resources"]["image_id"].values()) == [f"docker:{pinned}"]
    assert rented["envs"]["SPECSWEEP_IMAGE_DIGEST"] == pinned
    assert "SPECSWEEP_IMAGE_DIGEST" not in asked["tasks"]["h100-pip"]["rented"]["envs"]


@pytest.mark.slow(1)
def test_no_cloud_copies_the_users_credential_files_unless_the_user_says_so(asked: dict[str, Any]) -> None:
    said = asked["remote_identity"]
    assert {said[cloud] for cloud in ("aws", "gcp", "kubernetes", "ssh")} == {"NO_UPLOAD"}
    assert said["azure"] == "my-role"


@pytest.mark.slow(1)
def test_secrets_travel_in_a_file_and_are_shown_nowhere(asked: dict[str, Any], task: dict[str, Any]) -> None:
    rented = task["rented"]
    assert rented["secrets"] == [], "SkyPilot writes those into command lines"
    assert json.loads(rented["carried"]) == CANARIES
    shown = ("dump", "shown", "envs", "resources", "mounts")
    everywhere = " ".join([*(str(rented[each]) for each in shown), asked["printed"]])
    assert not [value for value in CANARIES.values() if value in everywhere]
