"""What a new user meets first becomes one line with a remedy. The texts are SkyPilot 0.14.1's and the clouds' own."""

from __future__ import annotations

import pytest

from configs.errors import LONGEST
from flows.clusters.skypilot.remedies import cloud_words, explain, refuses

MET = [
    (
        "AWS credentials are not set. Run the following commands:\n    $ aws configure\n    Details: `aws sts "
        "get-caller-identity` failed with error: [NoCredentialsError] Unable to locate credentials.",
        "no AWS credentials were found", "aws configure",
    ),
    (
        "Failed to access AWS services with credentials. Make sure that the access and secret keys are correct. Run "
        "the following commands: $ aws configure",
        "AWS refuses the credentials", "AWS_SECRET_ACCESS_KEY",
    ),
    ("AWS access token is expired. Run `aws sso login`", "the AWS credentials have expired", "aws sso login"),
    (
        "GCP tools are not installed. Run the following commands:\n  $ pip install google-api-python-client\n  "
        "Credentials may also need to be set. Run the following commands:\n  $ gcloud init",
        "GCP tools are not installed", "gcp extra",
    ),
    (
        "Application credentials are not set. Run the following commands:\n  $ gcloud auth application-default login",
        "no Google Cloud credentials", "gcloud auth application-default login",
    ),
    ("Cloud access is not set up. Run: \x1b[1msky check\x1b[0m", "no cloud is enabled", "bin/sky check"),
    (
        "\x1b[33mFound no quota for p5.4xlarge spot instances in region us-east-1 in AWS. \x1b[0mTo request quotas, "
        "check the instruction: https://docs.skypilot.co/en/latest/cloud-setup/quota.html.",
        "no quota for p5.4xlarge spot instances in region us-east-1", "All P5 Spot Instance Requests",
    ),
    (
        "Failed to acquire resources in us-east-1a for {AWS(p5.4xlarge[Spot])}. Reason: An error occurred "
        "(MaxSpotInstanceCountExceeded) when calling the RunInstances operation: Max spot instance count exceeded",
        "spot quota of the region is used up", "All P5 Spot Instance Requests",
    ),
    (
        "An error occurred (VcpuLimitExceeded) when calling the RunInstances operation: You have requested more vCPU "
        "capacity than your current vCPU limit of 0 allows for the instance bucket",
        "on-demand quota of the region is used up", "Running On-Demand P instances",
    ),
    (
        "Quota 'PREEMPTIBLE_NVIDIA_H100_GPUS' exceeded.  Limit: 0.0 in region us-central1.",
        "Quota 'PREEMPTIBLE_NVIDIA_H100_GPUS' exceeded. Limit: 0.0 in region us-central1", "ask Google for that quota",
    ),
    (
        "No image found in catalog for region us-west-2. Try setting a valid image_id.",
        "No image found in catalog for region us-west-2", "image_id",
    ),
    (
        "Image 'ami-0729d913a335efca7' not found in AWS region eu-west-1 - can't get image size.\n\nTo find AMI IDs:",
        "Image 'ami-0729d913a335efca7' not found in AWS region eu-west-1", "remove the region",
    ),
    (
        "docker: Error response from daemon: pull access denied for team/engine, repository does not exist",
        "pull access denied for team/engine", "SKYPILOT_DOCKER_PASSWORD",
    ),
    (
        "An error occurred (AuthFailure.ServiceLinkedRoleCreationNotPermitted) when calling the RunInstances "
        "operation: The provided credentials do not have permission to create the service-linked role for EC2 Spot.",
        "never rented spot", "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    ),
    (
        "An error occurred (UnauthorizedOperation) when calling the RunInstances operation: You are not authorized to "
        "perform this operation.",
        "lacks a permission", "cloud-permissions",
    ),
    (
        "Failed to acquire resources in all zones in us-east-2 for {AWS(p5.4xlarge[Spot])}.\nReason: An error occurred "
        "(InsufficientInstanceCapacity) when calling the RunInstances operation",
        "the cloud has none left there (InsufficientInstanceCapacity)", "another zone is tried",
    ),
    (
        "No launchable resource found for task Task(run='exec bin/node run'). To fix: relax its resource requirements.",
        "no enabled cloud offers", "max_hourly_cost",
    ),
    (
        "Could not connect to SkyPilot API server at http://127.0.0.1:46580. Please ensure that the server is running.",
        "Could not connect to SkyPilot API server at http://127.0.0.1:46580", "sky api start",
    ),
    ("Failed to fetch AWS catalog aws/vms.csv. ", "can't fetch its price catalogue", "catalogs/v8"),
    ("/bin/sh: 1: rsync: not found", "rsync: not found", "bin/debian-packages rsync"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "cause", "remedy"), MET, ids=[cause for _, cause, _ in MET])
def test_a_known_error_is_one_line_with_its_remedy(text: str, cause: str, remedy: str) -> None:
    said = explain(text)
    before, _, after = said.partition("; remedy: ")
    assert cause in before and remedy in after
    assert "\n" not in said and "\x1b" not in said and len(said) < 400


def test_want_of_quota_is_not_taken_for_want_of_capacity() -> None:
    assert "quota" in explain("Failed to acquire. Reason: (MaxSpotInstanceCountExceeded) InsufficientInstanceCapacity")


def test_an_unknown_error_is_quoted_and_shortened_from_the_middle() -> None:
    assert explain("something\nnew  happened") == "something new happened"
    said = explain(f"it began here {'x' * 5000} and ended there")
    assert said.startswith("it began here") and said.endswith("and ended there") and len(said) < LONGEST + 10


@pytest.mark.parametrize(
    ("said", "is_refusal"),
    [
        ("Found no quota for p5.4xlarge spot instances in region us-east-1 in AWS.", True),
        ("Quota 'PREEMPTIBLE_NVIDIA_H100_GPUS' exceeded.  Limit: 0.0 in region us-central1.", True),
        ("Quota 'PREEMPTIBLE_NVIDIA_H100_GPUS' exceeded.  Limit: 8.0 in region us-central1.", False),
        ("(VcpuLimitExceeded) You have requested more vCPU capacity than your current vCPU limit of 0 allows", True),
        ("(VcpuLimitExceeded) You have requested more vCPU capacity than your current vCPU limit of 64 allows", False),
        ("An error occurred (UnauthorizedOperation) when calling the RunInstances operation", True),
        ("No image found in catalog for region us-west-2. Try setting a valid image_id.", True),
        ("An error occurred (InvalidAMIID.NotFound) when calling the RunInstances operation: The image id", True),
        ("(Unsupported) Your requested instance type (p5.4xlarge) is not supported in your requested", True),
        ("(OptInRequired) You are not subscribed to this service. Please go to http://aws.amazon.com", True),
        ("The following features are not supported by AWS:\n\tspot_instance", True),
        ("Machine type with name 'a3-highgpu-1g' does not exist in zone 'us-central1-f'.", True),
        ("Required 'compute.instances.create' permission for 'projects/p1/zones/us-central1-a/instances/x'", True),
        ("Compute Engine API has not been used in project 123 before or it is disabled.", True),
        ("UNSUPPORTED_OPERATION: the machine was preempted while it was created", False),
        ("An error occurred (InsufficientInstanceCapacity) when calling the RunInstances operation", False),
        ("something that nobody knows", False),
    ],
)
def test_what_only_a_person_can_mend_is_told_from_a_want_of_machines(said: str, is_refusal: bool) -> None:
    assert refuses(said) is is_refusal


def test_what_the_cloud_said_is_found_in_the_log_of_the_launch_where_skypilots_error_leaves_it_out() -> None:
    """SkyPilot 0.14.1 on AWS: the error names the zone, the reason is a warning of its provisioner."""
    error = "Failed to acquire resources in us-west-2a for {AWS(p5.4xlarge)}."
    denied = "(VcpuLimitExceeded) when calling the RunInstances operation: ... your current vCPU limit of 0 allows"
    log = [
        "Launching on AWS us-west-2 (us-west-2a).",
        f"W 11-23 07:50:00 instance.py:412] create_instances: Attempt failed with An error occurred {denied}",
        f"W 11-23 07:50:02 instance.py:412] create_instances: Attempt failed with An error occurred {denied}",
    ]
    assert not refuses(error) and cloud_words(log) == f"An error occurred {denied}"
    assert refuses(f"{error} {cloud_words(log)}") and "on-demand quota" in explain(f"{error} {cloud_words(log)}")
    assert cloud_words(["rsync: Quota is fine", "setup: An error of the user's"]) == ""
