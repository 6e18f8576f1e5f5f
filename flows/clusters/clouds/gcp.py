"""Compute Engine instances of our SkyPilot clusters, in every zone of the project, by the REST API.

Only the credentials come from Google's libraries, which the control environment has with skypilot[gcp].
https://cloud.google.com/compute/docs/reference/rest/v1/instances/aggregatedList
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import Any, NamedTuple

import httpx

from flows.clusters.clouds.account import CLUSTER_TAG, CloudError, Instance, NotAsked, Sighting
from flows.clusters.protocol import PREFIX

COMPUTE_URL = "https://compute.googleapis.com/compute/v1"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TIMEOUT_S = 30.0


class Login(NamedTuple):
    """A project and a token for it."""

    project: str
    token: str


class GcpProject:
    """The project of Google's application default credentials."""

    cloud = "gcp"

    def __init__(self, url: str = COMPUTE_URL, log_in: Callable[[], Login] | None = None) -> None:
        """Without `log_in`, Google's application default credentials are used."""
        self._url, self._log_in = url, log_in or _default_login

    def look(self) -> Sighting:
        """Instances of every zone (see `Account.look`)."""
        project, http = self._connect()
        instances: list[Instance] = []
        problems: list[str] = []
        with http:
            for scope, answer in _scopes(http, project):
                zone = scope.removeprefix("zones/")
                if answer.get("warning", {}).get("code") == "UNREACHABLE":
                    problems.append(f"gcp/{zone}: unreachable")
                instances += [_instance(zone, record) for record in answer.get("instances", [])]
        ours = tuple(instance for instance in instances if instance.cluster.startswith(PREFIX))
        return Sighting(self.cloud, instances=ours, problems=tuple(problems))

    def terminate(self, instances: Sequence[Instance]) -> None:
        """Delete by name (see `Account.terminate`)."""
        self._each(instances, lambda http, path: http.delete(path))

    def label(self, instances: Sequence[Instance], labels: Mapping[str, str]) -> None:
        """Set labels by name (see `Account.label`); Google wants all of them, and which ones it had."""

        def set_labels(http: httpx.Client, path: str) -> httpx.Response:
            answer = http.get(path)
            if answer.is_error:
                return answer
            had = answer.json()
            body = {"labels": {**had.get("labels", {}), **labels}, "labelFingerprint": had.get("labelFingerprint")}
            return http.post(f"{path}/setLabels", json=body)

        self._each(instances, set_labels)

    def _each(self, instances: Sequence[Instance], do: Callable[[httpx.Client, str], httpx.Response]) -> None:
        """Do something to each machine by its path; one that is gone is fine."""
        project, http = self._connect()
        failed = []
        with http:
            for each in instances:
                try:
                    answer = do(http, f"/projects/{project}/zones/{each.zone}/instances/{each.instance_id}")
                except httpx.TransportError as error:
                    failed.append(f"{each.where} {each.instance_id}: {error}")
                    continue
                if answer.is_error and answer.status_code != httpx.codes.NOT_FOUND:
                    failed.append(f"{each.where} {each.instance_id}: {_said(answer)}")
        if failed:
            raise CloudError("; ".join(failed))

    def _connect(self) -> tuple[str, httpx.Client]:
        login = self._log_in()
        headers = {"Authorization": f"Bearer {login.token}"}
        return login.project, httpx.Client(base_url=self._url, headers=headers, timeout=TIMEOUT_S)


def _scopes(http: httpx.Client, project: str) -> Iterator[tuple[str, dict[str, Any]]]:
    asked = {"filter": f"labels.{CLUSTER_TAG}:*", "returnPartialSuccess": "true"}
    while True:
        try:
            answer = http.get(f"/projects/{project}/aggregated/instances", params=asked)
        except httpx.TransportError as error:
            raise CloudError(f"gcp: the instances of {project} can't be listed ({error})") from error
        if answer.is_error:
            raise CloudError(f"gcp: the instances of {project} can't be listed ({_said(answer)})")
        page = answer.json()
        yield from page.get("items", {}).items()
        if "nextPageToken" not in page:
            return
        asked = asked | {"pageToken": page["nextPageToken"]}


def _instance(zone: str, record: dict[str, Any]) -> Instance:
    labels = record.get("labels", {})
    scheduling = record.get("scheduling", {})
    made = record.get("creationTimestamp")
    return Instance(
        cloud="gcp",
        region=zone.rpartition("-")[0],
        zone=zone,
        instance_id=record["name"],
        cluster=labels.get(CLUSTER_TAG, ""),
        state=record["status"].lower(),
        spot=scheduling.get("provisioningModel") == "SPOT" or bool(scheduling.get("preemptible")),
        launched_at_s=datetime.fromisoformat(made).timestamp() if made else None,
        labels=labels,
    )


def _said(answer: httpx.Response) -> str:
    try:
        return f"{answer.status_code} {answer.json()['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{answer.status_code} {answer.reason_phrase}"


def _default_login() -> Login:
    try:
        auth, transport = import_module("google.auth"), import_module("google.auth.transport.requests")
    except ImportError as error:
        raise NotAsked("Google's libraries are not installed: add skypilot[gcp]") from error
    try:
        credentials, project = auth.default(scopes=[SCOPE])
    except auth.exceptions.DefaultCredentialsError as error:
        raise NotAsked("no credentials: `gcloud auth application-default login`") from error
    if not project:
        raise NotAsked("no project: set GOOGLE_CLOUD_PROJECT, or `gcloud config set project`")
    try:
        credentials.refresh(transport.Request())
    except auth.exceptions.GoogleAuthError as error:
        raise CloudError(f"gcp: the login fails ({error}): `gcloud auth application-default login`") from error
    return Login(project, credentials.token)
