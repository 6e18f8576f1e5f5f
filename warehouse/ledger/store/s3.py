"""S3 and its look-alikes as a store, through boto3. Create-only is PutObject with `If-None-Match: *`.

It is the one conditional write that AWS, Ceph, moto and ministack share; no If-Match, no conditional multipart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

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

from configs.secrets import secret
from warehouse.ledger.store.protocol import Passing, Patience, Seen, StoreAway, StoreError

PASSING = ("SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling", "RequestLimitExceeded")
"""S3's words for an answer that may be another one soon, which look-alikes send with other statuses, too."""

EXPIRED = ("ExpiredToken", "TokenRefreshRequired")
"""Keys that last some hours have expired (400 or 403): a new login, or the machine's role, brings new ones."""

NO_KEYS_NOW = (CredentialRetrievalError, UnauthorizedSSOTokenError, TokenRetrievalError)
"""The same before S3 is asked; also when a machine's metadata service does not answer."""

CONNECTIONS_VARIABLE = "SPECSWEEP_STORE_CONNECTIONS"
"""Environment variable: how many connections the threads of a process share."""

CONNECTIONS = 32  # unless it says otherwise. One more than these is made anew, TLS and all, for each request.


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
    """Connections that a process keeps open to its store. StoreError: the variable is no number of them."""
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


_Answer = TypeVar("_Answer")


class S3Store:
    """Objects below `s3://bucket/prefix`. Credentials are those held for it, else those that boto3 finds."""

    endpoint_variable = "AWS_ENDPOINT_URL"  # environment variable that errors tell the user to check

    def __init__(self, bucket: str, prefix: str, *, is_known: bool = False) -> None:
        """No request is made before the first call."""
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        self._patience = Patience(self.url, is_known=is_known)
        self.endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        self._client = self._connect()

    def _connect(self) -> Any:
        key_id, key, token = map(secret, ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"))
        return quick_session().client(
            "s3",
            endpoint_url=self.endpoint,
            config=client_config(self.endpoint),
            aws_access_key_id=key_id,
            aws_secret_access_key=key,
            aws_session_token=token,
        )

    @property
    def url(self) -> str:
        """The address, with its prefix."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def location(self) -> str:
        """The address with its server's name; Amazon's are one server, where a bucket's name is nobody else's."""
        server = urlsplit(self._client.meta.endpoint_url).netloc.lower()
        return self.url if server.endswith(".amazonaws.com") else f"{self.url} at {server}"

    @property
    def storage_options(self) -> dict[str, str] | None:
        """Options with which polars reads this bucket, with the same credentials and endpoint."""
        signer = self._client._request_signer
        credentials = signer._credentials
        if credentials is None:
            raise StoreError(f"no credentials for {self.url}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        options = {
            "aws_access_key_id": credentials.access_key,
            "aws_secret_access_key": credentials.secret_key,
            "aws_region": self._client.meta.region_name or "us-east-1",
        }
        if credentials.token:
            options["aws_session_token"] = credentials.token
        if self.endpoint:
            options |= {"aws_endpoint_url": self.endpoint, "aws_allow_http": "true"}
        return options

    def uri(self, key: str) -> str:
        """The object's `s3://` address."""
        return f"s3://{self.bucket}/{self._full(key)}"

    def put_new(self, key: str, data: bytes) -> bool:
        """Create `key` only if absent (see `Store.put_new`)."""

        def create() -> bool:
            try:
                self._client.put_object(Bucket=self.bucket, Key=self._full(key), Body=data, IfNoneMatch="*")
            except ClientError as error:
                if status(error) != 412:
                    raise
                return False
            return True

        # an earlier try of ours may have arrived without an answer: then the stored object is the one that we write
        return self._asked("write", key, create) or self.get(key) == data

    def put(self, key: str, data: bytes) -> None:
        """Write `key`, replacing what is there."""
        self._asked("write", key, lambda: self._client.put_object(Bucket=self.bucket, Key=self._full(key), Body=data))

    def get(self, key: str) -> bytes | None:
        """The object's bytes; None: there is no such key."""

        def read() -> bytes | None:
            try:
                body: bytes = self._client.get_object(Bucket=self.bucket, Key=self._full(key))["Body"].read()
                return body
            except self._client.exceptions.NoSuchKey:
                return None

        return self._asked("read", key, read)

    def list(self, prefix: str) -> list[str]:
        """Keys below the folder `prefix`, sorted."""
        return sorted(
            self._relative(entry["Key"]) for page in self._pages(prefix) for entry in page.get("Contents", [])
        )

    def seen(self, prefix: str) -> Iterator[Seen]:
        """See `Store.seen`."""
        for page in self._pages(prefix):
            now, back_s = _date(page), self._patience.back_s()
            for entry in page.get("Contents", []):
                age_s = (now - entry["LastModified"]).total_seconds()
                yield Seen(self._relative(entry["Key"]), entry["ETag"], min(age_s, back_s))

    def _pages(self, prefix: str) -> Iterator[Any]:
        """Answers of one listing, up to a thousand keys each; each is asked for until the store is back."""
        folder = self._full(prefix.rstrip("/") + "/" if prefix else "")
        asked = {"Bucket": self.bucket, "Prefix": folder}
        while True:
            page: Any = self._asked("list", prefix, partial(self._client.list_objects_v2, **asked))
            yield page
            if not page.get("IsTruncated"):
                return
            asked = {**asked, "ContinuationToken": page["NextContinuationToken"]}

    def age_s(self, key: str) -> float | None:
        """Seconds between the object's write and now, both by the server's clock; None: there is no such key."""

        def age() -> float | None:
            try:
                head = self._client.head_object(Bucket=self.bucket, Key=self._full(key))
            except ClientError as error:
                if status(error) != 404:
                    raise
                return None
            return float((_date(head) - head["LastModified"]).total_seconds())

        return self._asked("read", key, age)

    def silence_s(self, key: str) -> float | None:
        """See `Store.silence_s`."""
        age_s = self.age_s(key)
        return None if age_s is None else min(age_s, self._patience.back_s())

    def hurry(self) -> None:
        """See `Store.hurry`."""
        self._patience.hurry()

    def clock_skew_s(self) -> float:
        """See `Store.clock_skew_s`: no finer than the whole seconds of the server's Date header."""

        def skew() -> float:
            answer = self._client.list_objects_v2(Bucket=self.bucket, Prefix=self._full("none"), MaxKeys=1)
            return (_date(answer) - datetime.now(UTC)).total_seconds()

        return self._asked("list", "", skew)

    def delete(self, key: str) -> None:
        """Remove the object; one that isn't there is no error."""

        def remove() -> None:
            try:
                self._client.delete_object(Bucket=self.bucket, Key=self._full(key))
            except ClientError as error:
                if error.response["Error"]["Code"] not in ("NoSuchKey", "404"):
                    raise  # S3 answers 204 for a key that is not there, Google 404

        self._asked("delete", key, remove)

    def _asked(self, verb: str, key: str, call: Callable[[], _Answer]) -> _Answer:
        """What `call` returns, asked again while the store is away. StoreAway: for too long; StoreError: it refused."""

        def once() -> _Answer:
            try:
                return call()
            except (ClientError, BotoCoreError) as error:
                if may_pass(error):
                    raise Passing(str(error)) from error
                raise StoreError(self._why(verb, key, error)) from error

        try:
            return self._patience.ask(once)
        except Passing as error:
            raise StoreAway(self._why(verb, key, error)) from error

    def _relative(self, full: str) -> str:
        return full[len(self.prefix) + 1 :] if self.prefix else full

    def _full(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def _why(self, verb: str, key: str, error: Exception) -> str:
        advice = f"check the bucket, the credentials and {self.endpoint_variable}"
        return f"can't {verb} {self.url}/{key}: {error}; {advice}"


def _date(answer: Any) -> datetime:
    """When the server answered, by its own clock, in whole seconds."""
    return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
