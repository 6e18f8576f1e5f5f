"""Questions to Google's Compute Engine, against its REST interface as documented; AWS without its credentials."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest

from flows.clusters.clouds.account import CLUSTER_TAG, CloudError, Instance, NotAsked
from flows.clusters.clouds.aws import AwsAccount, machines_of
from flows.clusters.clouds.gcp import GcpProject, Login
from flows.clusters.protocol import PREFIX
from tests.fake_cloud import OFFER
from tests.loopback import Answering, serving

FIRST = f"{PREFIX}aaaa-1-12ab34cd"


class Compute:
    """The two calls that the reaper makes, with pages of one zone each; it has the two machines of a run."""

    answers_get = 200

    def __init__(self) -> None:
        self.machines: dict[str, dict[str, object]] = {}
        self.unreachable: list[str] = []
        self.undeletable: set[str] = set()
        self.add("m1", FIRST)
        self.add("m2", f"{PREFIX}aaaa-2-12ab34cd", "europe-west4-b")

    def add(self, name: str, cluster: str, zone: str = "us-central1-a") -> None:
        self.machines[name] = {
            "name": name,
            "zone": zone,
            "status": "RUNNING",
            "creationTimestamp": "2026-11-20T02:00:00.000-08:00",
            "labels": {CLUSTER_TAG: cluster},
            "labelFingerprint": "a1",
            "scheduling": {"provisioningModel": "SPOT"},
        }

    def get(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, object]]:
        head, _, name = path.rpartition("/")
        if head.endswith("/instances"):
            found = self.machines.get(name)
            return (404, {"error": {"message": "not found"}}) if found is None else (200, found)
        assert path == "/projects/p1/aggregated/instances" and query["filter"] == [f"labels.{CLUSTER_TAG}:*"]
        if self.answers_get != 200:
            return self.answers_get, {"error": {"message": "Required 'compute.instances.list' permission"}}
        zones = sorted({str(machine["zone"]) for machine in self.machines.values()} | set(self.unreachable))
        page = int(query.get("pageToken", ["0"])[0])
        if not zones:
            return 200, {}
        here = [machine for machine in self.machines.values() if machine["zone"] == zones[page]]
        answer: dict[str, object] = {"instances": here} if here else {"warning": {"code": "NO_RESULTS_ON_PAGE"}}
        if zones[page] in self.unreachable:
            answer = {"warning": {"code": "UNREACHABLE"}}
        more = {"nextPageToken": str(page + 1)} if page + 1 < len(zones) else {}
        return 200, {"items": {f"zones/{zones[page]}": answer}, **more}

    def delete(self, path: str) -> tuple[int, dict[str, object]]:
        head, _, name = path.rpartition("/")
        assert head.startswith("/projects/p1/zones/") and head.endswith("/instances")
        if name in self.undeletable:
            return 403, {"error": {"message": "Required 'compute.instances.delete' permission"}}
        gone = self.machines.pop(name, None)
        return (404, {"error": {"message": "not found"}}) if gone is None else (200, {"kind": "compute#operation"})

    def post(self, path: str, body: dict[str, object]) -> tuple[int, dict[str, object]]:
        name = path.removesuffix("/setLabels").rpartition("/")[2]
        assert path.endswith("/setLabels")
        if body["labelFingerprint"] != self.machines[name]["labelFingerprint"]:
            return 412, {"error": {"message": "Labels fingerprint either invalid or resource labels have changed"}}
        self.machines[name] |= {"labels": body["labels"], "labelFingerprint": "b2"}
        return 200, {"kind": "compute#operation"}


@pytest.fixture
def compute() -> Compute:
    return Compute()


@pytest.fixture
def project(compute: Compute) -> Iterator[GcpProject]:
    class Handler(Answering):
        def do_GET(self) -> None:
            parts = urlparse(self.path)
            self._answer(*compute.get(parts.path, parse_qs(parts.query)))

        def do_POST(self) -> None:
            self._answer(*compute.post(urlparse(self.path).path, json.loads(self.received())))

        def do_DELETE(self) -> None:
            self._answer(*compute.delete(self.path))

        def _answer(self, status: int, document: dict[str, object]) -> None:
            assert self.headers["Authorization"] == "Bearer token1"
            self.reply(status, json.dumps(document).encode())

    with serving(Handler) as address:
        yield GcpProject(f"http://{address}", lambda: Login("p1", "token1"))


def test_machines_of_ours_in_every_zone_are_seen_with_what_the_reaper_needs(
    compute: Compute, project: GcpProject
) -> None:
    compute.add("m3", "training-12ab34cd", "europe-west4-b")
    seen = {each.instance_id: each for each in project.look().instances}
    assert set(seen) == {"m1", "m2"}
    assert (seen["m2"].region, seen["m2"].where, seen["m2"].spot) == ("europe-west4", "gcp/europe-west4-b", True)
    assert seen["m1"].launched_at_s == 1795168800.0 and seen["m1"].state == "running"


def test_terminated_machines_are_gone_and_one_that_was_gone_is_fine(compute: Compute, project: GcpProject) -> None:
    machines = project.look().instances
    project.terminate(machines)
    project.terminate(machines)
    assert project.look().instances == () and compute.machines == {}


def test_a_label_is_set_beside_the_others_and_on_what_is_gone_it_is_not(compute: Compute, project: GcpProject) -> None:
    machines = project.look().instances
    del compute.machines["m2"]
    project.label(machines, {"specsweep-expires": "1795168800"})
    project.label(machines, {"specsweep-expires": "1795172400"})
    (machine,) = project.look().instances
    assert machine.labels == {CLUSTER_TAG: FIRST, "specsweep-expires": "1795172400"}


def test_a_zone_that_does_not_answer_and_a_refusal_are_told(compute: Compute, project: GcpProject) -> None:
    compute.unreachable.append("asia-east1-a")
    sighting = project.look()
    assert sighting.problems == ("gcp/asia-east1-a: unreachable",) and len(sighting.instances) == 2
    compute.undeletable.add("m1")
    with pytest.raises(CloudError, match=r"gcp/us-central1-a m1: 403 .*compute\.instances\.delete"):
        project.terminate(sighting.instances)
    assert set(compute.machines) == {"m1"}, "the others are terminated all the same"
    compute.answers_get = 403
    with pytest.raises(CloudError, match=r"403 .*compute\.instances\.list"):
        project.look()


def test_where_google_is_not_set_up_it_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # else Google's library looks for a metadata server
    monkeypatch.setenv("CLOUDSDK_CONFIG", "/nonexistent")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with pytest.raises(NotAsked, match=r"add skypilot\[gcp\]|no credentials"):
        GcpProject().look()


MACHINE = Instance("aws", "us-east-1", "us-east-1a", "i-1", "specsweep-x-1234", "running", True, None, {})


@pytest.fixture
def logged_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A `credential_process` that fails, as when its login has ended."""
    config = tmp_path / "config"
    config.write_text("[default]\nregion = us-east-1\ncredential_process = /bin/false\n", encoding="utf-8")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("logged_out")
def test_an_aws_account_without_its_login_says_so_and_its_clusters_are_left_to_skypilot() -> None:
    for ask in (AwsAccount().look, lambda: AwsAccount().terminate([MACHINE])):
        with pytest.raises(CloudError, match=r"aws: its credentials can't be had .*credential"):
            ask()
    assert machines_of("specsweep-x", OFFER) is None


@pytest.mark.usefixtures("logged_out")
def test_a_profile_that_does_not_exist_is_no_other_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "night")
    with pytest.raises(CloudError, match=r"config profile \(night\) could not be found"):
        AwsAccount().look()
