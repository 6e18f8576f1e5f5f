"""S3 and its look-alikes as a store, through boto3. Create-only is PutObject with `If-None-Match: *`.

It is the one conditional write that AWS, Ceph, moto and ministack share; no If-Match, no conditional multipart.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from warehouse.store.protocol import StoreError

CONFLICT_TRIES = 6
"""Tries of a PUT that S3 answers with 409 (another conditional write of the key is in flight)."""


class S3Store:
    """Objects below `s3://bucket/prefix`. Credentials come from the environment, as boto3 finds them."""

    endpoint_variable = "AWS_ENDPOINT_URL"
    """Environment variable that errors tell the user to check."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        self.endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        self._client = self._connect()

    def _connect(self) -> Any:
        return boto3.client("s3", endpoint_url=self.endpoint, config=client_config(self.endpoint))

    @property
    def url(self) -> str:
        """The address, with its prefix."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

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
        for tried in range(CONFLICT_TRIES):
            try:
                self._client.put_object(Bucket=self.bucket, Key=self._full(key), Body=data, IfNoneMatch="*")
                return True
            except ClientError as error:
                status = _status(error)
                if status == 412:
                    # boto3 retries by itself: a first try that landed makes the second one answer 412
                    return self.get(key) == data
                if status != 409:
                    raise self._failed("write", key, error) from error
                time.sleep(0.05 * 2**tried)
            except BotoCoreError as error:
                raise self._failed("write", key, error) from error
        raise StoreError(f"{self.url}/{key} answered 409 {CONFLICT_TRIES} times: another writer never finished")

    def put(self, key: str, data: bytes) -> None:
        """Write `key`, replacing what is there."""
        try:
            self._client.put_object(Bucket=self.bucket, Key=self._full(key), Body=data)
        except (ClientError, BotoCoreError) as error:
            raise self._failed("write", key, error) from error

    def get(self, key: str) -> bytes | None:
        """The object's bytes; None: there is no such key."""
        try:
            body: bytes = self._client.get_object(Bucket=self.bucket, Key=self._full(key))["Body"].read()
            return body
        except self._client.exceptions.NoSuchKey:
            return None
        except (ClientError, BotoCoreError) as error:
            raise self._failed("read", key, error) from error

    def list(self, prefix: str) -> list[str]:
        """Keys below the folder `prefix`, sorted."""
        skip = len(self.prefix) + 1 if self.prefix else 0
        folder = self._full(prefix.rstrip("/") + "/" if prefix else "")
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=folder)
            return sorted(entry["Key"][skip:] for page in pages for entry in page.get("Contents", []))
        except (ClientError, BotoCoreError) as error:
            raise self._failed("list", prefix, error) from error

    def age_s(self, key: str) -> float | None:
        """Seconds between the object's write and now, both by the server's clock; None: there is no such key."""
        try:
            head = self._client.head_object(Bucket=self.bucket, Key=self._full(key))
        except ClientError as error:
            if _status(error) == 404:
                return None
            raise self._failed("read", key, error) from error
        except BotoCoreError as error:
            raise self._failed("read", key, error) from error
        now = parsedate_to_datetime(head["ResponseMetadata"]["HTTPHeaders"]["date"])
        return float((now - head["LastModified"]).total_seconds())

    def clock_skew_s(self) -> float:
        """Seconds by which the server's clock is ahead of ours; no finer than the whole seconds of its Date header."""
        try:
            answer = self._client.list_objects_v2(Bucket=self.bucket, Prefix=self._full("none"), MaxKeys=1)
        except (ClientError, BotoCoreError) as error:
            raise self._failed("list", "", error) from error
        theirs = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return (theirs - datetime.now(UTC)).total_seconds()

    def delete(self, key: str) -> None:
        """Remove the object; one that isn't there is no error."""
        try:
            self._client.delete_object(Bucket=self.bucket, Key=self._full(key))
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return  # S3 answers 204 for a key that is not there, Google 404
            raise self._failed("delete", key, error) from error

    def _full(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def _failed(self, verb: str, key: str, error: Exception) -> StoreError:
        return StoreError(
            f"can't {verb} {self.url}/{key}: {error}; check the bucket, the credentials and {self.endpoint_variable}"
        )


def _status(error: ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def client_config(endpoint: str | None) -> Config:
    """How boto3 talks to S3 and its look-alikes; those with an `endpoint` get path-style addresses."""
    return Config(
        retries={"max_attempts": 8, "mode": "standard"},
        connect_timeout=10,
        read_timeout=60,
        # Ceph and older look-alikes refuse the newer default checksums
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path"} if endpoint else None,
    )
