"""boto3 as the stores use it: a session that reads listings quickly, its connections, and which answers may pass."""

from __future__ import annotations

import os
from datetime import datetime
from email.utils import parsedate_to_datetime

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
from botocore.session import get_session

from warehouse.ledger.store.protocol import StoreError

PASSING = ("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "RequestLimitExceeded")
"""S3's words for an answer that may be another one soon, which look-alikes send with other statuses, too."""

EXPIRED = ("ExpiredToken", "TokenRefreshRequired")
"""Keys for some hours have run out (400 or 403): whoever logs in again, or the machine's role, brings new ones."""

NO_KEYS_NOW = (CredentialRetrievalError, UnauthorizedSSOTokenError, TokenRetrievalError)
"""The same before S3 is asked; also when a machine's metadata service does not answer."""

CONNECTIONS_VARIABLE = "SPECSWEEP_STORE_CONNECTIONS"
"""Environment variable: how many connections the threads of a process share."""

CONNECTIONS = 32
"""Unless it says otherwise. One more than these is made anew, TLS and all, for each request."""


def may_pass(error: ClientError | BotoCoreError) -> bool:
    """No answer, half of one, a busy or broken server, or another conditional write of the key in flight (409)."""
    if isinstance(error, ClientError):
        code = error.response["Error"]["Code"]
        return status(error) in (408, 409, 429) or status(error) >= 500 or code in (*PASSING, *EXPIRED)
    return isinstance(error, (ConnectionError, HTTPClientError, IncompleteReadError, *NO_KEYS_NOW))


def status(error: ClientError) -> int:
    """Of HTTP."""
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def connections() -> int:
    """Connections that a process keeps open to its store.

    Raises:
        StoreError: `CONNECTIONS_VARIABLE` is no number of them.
    """
    asked = os.environ.get(CONNECTIONS_VARIABLE) or str(CONNECTIONS)
    if not asked.isdecimal() or int(asked) < 1:
        raise StoreError(f"{CONNECTIONS_VARIABLE}={asked!r}: give a number, such as {CONNECTIONS}")
    return int(asked)


def quick_session() -> boto3.Session:
    """A session that reads the moments of a listing in 15 ms of CPU a page, not in 64, as dateutil does."""
    core = get_session()
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_moment)
    return boto3.Session(botocore_session=core)


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # a header's
        return parsedate_to_datetime(text)


def client_config(endpoint: str | None) -> Config:
    """How boto3 talks to S3 and its look-alikes; those with an `endpoint` get path-style addresses."""
    return Config(
        max_pool_connections=connections(),
        # we ask again ourselves: botocore's tries end within seconds, and threads share them
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=10,
        read_timeout=60,
        # Ceph and older look-alikes refuse the newer default checksums
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"} if endpoint else None,
    )
