"""Why a launch failed, and the errors that a new user of a cloud meets first, each as one line with its remedy.

The patterns are SkyPilot 0.14.1's own sentences and the error codes of AWS and Google that it passes on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from configs.errors import shortened
from flows.clusters.protocol import LaunchFailed
from flows.clusters.skypilot import server as sky_server
from flows.clusters.skypilot.api import Rented
from flows.clusters.skypilot.server import ANSI
from warehouse.ledger.outcomes import Ended


class _Known(NamedTuple):
    """A pattern, what to do, a cause if its first match isn't quoted; `refuses`: asking again before is in vain."""

    pattern: str
    remedy: str
    cause: str | None = None
    refuses: bool = False


KNOWN: tuple[_Known, ...] = (
    _Known(r"Could not connect to SkyPilot API server at \S+[^.\s]",
           "run `bin/sky api start`, or unset SKYPILOT_API_SERVER_ENDPOINT to use one on this machine"),
    _Known(r"AWS access token is expired|InvalidCloudCredentials|ExpiredToken|RequestExpired",
           "log in again (`aws sso login`, or new AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)",
           "the AWS credentials have expired", refuses=True),
    _Known(r"ServiceLinkedRoleCreationNotPermitted",
           "have an administrator run `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com` once",
           "the AWS account has never rented spot machines", refuses=True),
    _Known(r"Failed to access AWS services with credentials|InvalidClientTokenId|SignatureDoesNotMatch|AuthFailure",
           "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or ~/.aws/credentials with `aws sts get-caller-identity`",
           "AWS refuses the credentials", refuses=True),
    _Known(r"AWS credentials are not set|Unable to locate credentials|credentials does not exist",
           "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or run `aws configure`, then `bin/sky check aws`",
           "no AWS credentials were found"),
    _Known(r"GCP tools are not installed",
           "install the Google Cloud CLI, and write skypilot's gcp extra into requirements/control.in; then "
           "`gcloud auth application-default login` and `bin/sky check gcp`"),
    _Known(r"Application credentials are not set|No GCP account is activated|Failed to get GCP project id"
           r"|Getting project ID or user identity failed|gcloud auth application-default login",
           "run `gcloud init` and `gcloud auth application-default login`, then `bin/sky check gcp`",
           "no Google Cloud credentials were found"),
    _Known(r"Cloud access is not set up|No cloud is enabled",
           "set up credentials of one cloud and run `bin/sky check`; `sweep doctor` shows what it found",
           "no cloud is enabled"),
    _Known(r"Found no quota for (?P<cause>\S+ (?:spot|on-demand) instances in region \S+)",
           "ask the cloud for quota in that region (AWS: Service Quotas, `All P5 Spot Instance Requests`, 16 vCPUs per "
           "H100), or remove the region from any_of",
           "no quota for {}", refuses=True),
    _Known(r"MaxSpotInstanceCountExceeded|Max spot instance count exceeded",
           "ask AWS for more of `All P5 Spot Instance Requests` (16 vCPUs per H100) in that region, or lower the "
           "sweep's concurrency",
           "the AWS spot quota of the region is used up"),
    _Known(r"VcpuLimitExceeded|more vCPU capacity than your current vCPU limit",
           "ask AWS for more of `Running On-Demand P instances` (16 vCPUs per H100) in that region, or lower the "
           "sweep's concurrency",
           "the AWS on-demand quota of the region is used up"),
    _Known(r"Quota '[^']+' exceeded\.?(?:\s+Limit: [\d.]+(?: in region [\w-]+)?)?|quotaExceeded|QUOTA_EXCEEDED",
           "ask Google for that quota in that region (IAM & Admin, Quotas), or remove the region from any_of"),
    _Known(r"No image found (?:in catalog )?for region [\w-]+|Image '[^']+' not found in (?:AWS region [\w-]+|GCP)",
           "name an image_id that exists there (or let the account look: ec2:DescribeImages), or remove the region "
           "from any_of of the task",
           refuses=True),
    _Known(r"InvalidAMIID\.\w+",
           "name an image_id that exists there, or remove the region from any_of of the task",
           "the image is not to be had there", refuses=True),
    _Known(r"\(Unsupported\w*\)|requested instance type \S+ is not supported in your requested Availability Zone"
           r"|Machine type with name '[^']+' does not exist in zone '[^']+'|Invalid value '[^']*' for InstanceType"
           r"|The following features are not supported by [^.?:]+|Docker image is currently not supported on [\w ]+",
           "remove that zone or cloud from any_of of the task, or ask it for another machine",
           "the cloud does not offer that there", refuses=True),
    _Known(r"\((?:OptInRequired|Blocked|PendingVerification)\)",
           "sign in to the AWS console: the region has to be enabled, or the account verified or unblocked",
           "AWS keeps the account from renting there", refuses=True),
    _Known(r"SERVICE_DISABLED|accessNotConfigured|Compute Engine API has not been used in project|BILLING_DISABLED",
           "enable the Compute Engine API and billing of the Google Cloud project",
           "the Google Cloud project may not rent", refuses=True),
    _Known(r"manifest(?: for \S+)? (?:unknown|not found)|pull access denied for \S+",
           "check the engine's image name and tag; for a private registry list SKYPILOT_DOCKER_USERNAME, "
           "SKYPILOT_DOCKER_PASSWORD and SKYPILOT_DOCKER_SERVER under secrets of the task and set them"),
    _Known(r"UnauthorizedOperation|AccessDenied\w*|You are not authorized to perform|does not have permission"
           r"|IAM_PERMISSION_DENIED|Required '[\w.]+' permission|Policy update access denied"
           r"|is not found or access is unauthorized",
           "give the account the permissions listed under docs.skypilot.co/en/latest/cloud-setup/cloud-permissions",
           "the cloud account lacks a permission", refuses=True),
    _Known(r"(?:No|All) candidate subnets [^.?]+",
           "give the region's default VPC a public subnet, or set aws.vpc_name in ~/.sky/config.yaml"),
    _Known(r"(?P<cause>InsufficientInstanceCapacity|SpotMaxPriceTooLow|ZONE_RESOURCE_POOL_EXHAUSTED\w*|stockout)",
           "nothing to do: another zone is tried; more entries in any_of of the task help",
           "the cloud has none left there ({})"),
    _Known(r"No launchable resource found|Catalog does not contain any instances",
           "raise max_hourly_cost or widen any_of of the task, and see `sweep doctor` for offers and enabled clouds",
           "no enabled cloud offers what the task asks for"),
    _Known(r"Failed to fetch \w+ catalog [\w./]+|raw\.githubusercontent\.com",
           "let this machine reach raw.githubusercontent.com once, or copy the CSV files to ~/.sky/catalogs/v8",
           "SkyPilot can't fetch its price catalogue"),
    _Known(r"(?:rsync|ssh)(?:: command not found|: not found| is not installed)",
           "run `bin/debian-packages rsync openssh-client`, or install both with your package manager"),
    _Known(r"Failed to acquire resources(?: \([^)]*\))? in (?P<cause>(?:all zones in )?[\w-]+)",
           "nothing to do: another zone is tried; more entries in any_of of the task help",
           "the cloud has none left in {}"),
)  # fmt: skip
"""Most specific first: a refusal for lack of quota also says that no resources could be acquired."""

NO_QUOTA = re.compile(r"vCPU limit of 0 |Limit: 0(?:\.0)?(?: |$)")  # a used up one comes back; not one of 0
CLOUD_SAID = re.compile(r"(?:An error occurred \(|HttpError |Quota ')[^\n]*")  # AWS's and Google's libraries


def cloud_words(lines: Iterable[str]) -> str:
    """What the cloud itself said in the log of a launch, each sentence once: SkyPilot's error only names the zone."""
    return " ".join(dict.fromkeys(found[0] for line in lines if (found := CLOUD_SAID.search(line))))


def refuses(error_text: str) -> bool:
    """Whether the cloud will say the same until a person has done something: a quota of 0, a permission, an image."""
    text = _plain(error_text)
    recognised = _recognised(text)
    return (recognised is not None and recognised[0].refuses) or NO_QUOTA.search(text) is not None


def explain(error_text: str) -> str:
    """An error as one line: `cause; remedy: what to do`. An unknown one is quoted, its middle left out."""
    text = _plain(error_text)
    recognised = _recognised(text)
    if recognised is not None:
        known, found = recognised
        quoted = found.groupdict().get("cause") or found[0]
        cause = quoted if known.cause is None else known.cause.format(quoted)
        return f"{cause}; remedy: {known.remedy}"
    return shortened(text)


def _plain(text: str) -> str:
    return " ".join(ANSI.sub("", text).split())


def _recognised(text: str) -> tuple[_Known, re.Match[str]] | None:
    """The first of `KNOWN` that the text is, and where; None: nothing here knows it."""
    tried = ((known, re.search(known.pattern, text, re.IGNORECASE)) for known in KNOWN)
    return next(((known, found) for known, found in tried if found), None)


def was_raced(log: Sequence[str]) -> bool:
    """Whether another launch was first to open a port of a region's new security group: now this one may succeed."""
    return "InvalidPermission.Duplicate" in cloud_words(log)


def launch_failed(
    error: Exception, where: str, log: Sequence[str], left_of_it: Callable[[], Sequence[Rented]]
) -> LaunchFailed:
    """Why a launch failed, by SkyPilot's exception and log; `left_of_it` asks the cloud, and may raise anything."""
    said = sky_server.text_of(error)
    errors = sky_server.sdk().exceptions
    if isinstance(error, errors.ResourcesUnavailableError):
        said = f"{said} {cloud_words(log)}"  # the error itself leaves out what EC2 said
        if refuses(said):
            return LaunchFailed(f"{where}: refused ({explain(said)})", Ended.REFUSED)
        return LaunchFailed(f"{where}: no capacity ({explain(said)})", Ended.NO_CAPACITY)
    text = explain(said)
    if isinstance(error, sky_server.SkyUnavailable):  # no cloud took anything away
        return LaunchFailed(f"{where}: {text}", Ended.LAUNCH_FAILED)
    try:
        left = left_of_it()
    except Exception as unanswered:  # whatever it is: why the launch failed is known all the same
        unknown = f"what is left of it can't be asked: {sky_server.text_of(unanswered)}"
        return LaunchFailed(f"{where}: {text} ({unknown})", Ended.LAUNCH_FAILED)
    mended_by_a_person = (errors.NotSupportedError, errors.InvalidCloudConfigs, errors.InvalidCloudCredentials)
    if not left and (refuses(said) or isinstance(error, mended_by_a_person)):
        return LaunchFailed(f"{where}: refused ({text})", Ended.REFUSED)
    if not left:
        return LaunchFailed(f"{where}: the cluster vanished while it was set up ({text})", Ended.PREEMPTED)
    if left[0].status == "INIT":
        return LaunchFailed(f"{where}: setup failed ({text})", Ended.SETUP_FAILED)
    return LaunchFailed(f"{where}: {text}", Ended.LAUNCH_FAILED)
