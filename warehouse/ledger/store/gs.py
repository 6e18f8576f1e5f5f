"""Google Cloud Storage as a store, through its S3-compatible XML API and an HMAC key.

Everything but the one conditional write is S3Store's. Google ignores `If-None-Match` on a PUT and wants
`x-goog-if-generation-match: 0` (cloud.google.com/storage/docs/request-preconditions). It refuses that header together
with any `x-amz-` one (400 ExcessHeaderValues). So this request alone is signed by Google's own scheme,
GOOG4-HMAC-SHA256 (cloud.google.com/storage/docs/authentication/signatures). It differs from Amazon's only in its names.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

import urllib3

from configs.secrets import secret
from warehouse.ledger.store.protocol import Passing, StoreError
from warehouse.ledger.store.s3 import S3Store, client_config, connections, quick_session

GOOGLE = "https://storage.googleapis.com"

KEY_VARIABLE, SECRET_VARIABLE = "GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY"
"""An HMAC key of a service account; AWS's variables stay free for AWS."""


class GsStore(S3Store):
    """Objects below `gs://bucket/prefix`. The key is read from GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY."""

    endpoint_variable = "GS_ENDPOINT_URL"

    def __init__(self, bucket: str, prefix: str, *, is_known: bool = False) -> None:
        """Read the HMAC key; no request is made before the first call. StoreError: there is none in the environment."""
        self._key_id, self._secret = (secret(name) or "" for name in (KEY_VARIABLE, SECRET_VARIABLE))
        if not self._key_id or not self._secret:
            raise StoreError(
                f"no HMAC key for gs://{bucket}: set {KEY_VARIABLE} and {SECRET_VARIABLE} "
                "(`gcloud storage hmac create SERVICE_ACCOUNT` makes one)"
            )
        self._http = urllib3.PoolManager(
            maxsize=connections(), timeout=urllib3.Timeout(connect=10, read=60), retries=False
        )
        super().__init__(bucket, prefix, is_known=is_known)

    def _connect(self) -> Any:
        self.endpoint = os.environ.get(self.endpoint_variable, GOOGLE).rstrip("/")
        return quick_session().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="auto",
            config=client_config(self.endpoint),
            aws_access_key_id=self._key_id,
            aws_secret_access_key=self._secret,
            aws_session_token=None,
        )

    @property
    def url(self) -> str:
        """The address, with its prefix. `uri` stays `s3://`: polars reads the bucket through the same API."""
        return f"gs://{self.bucket}/{self.prefix}".rstrip("/")

    def put_new(self, key: str, data: bytes) -> bool:
        """Create `key` only if absent (see `Store.put_new`)."""
        url = f"{self.endpoint}/{quote(f'{self.bucket}/{self._full(key)}', safe='/~')}"

        def create() -> bool:
            headers = {"x-goog-if-generation-match": "0"}
            signed = goog4_headers("PUT", url, headers, data, self._key_id, self._secret, datetime.now(UTC))
            try:
                answer = self._http.request("PUT", url, body=data, headers=signed)
            except urllib3.exceptions.HTTPError as error:
                raise Passing(str(error)) from error
            if answer.status in (200, 412):
                return answer.status == 200
            said = f"{answer.status} {answer.data.decode(errors='replace')[:300]}"
            if answer.status in (408, 409, 429) or answer.status >= 500:
                raise Passing(said)
            raise StoreError(self._why("write", key, StoreError(said)))

        return self._asked("write", key, create) or self.get(key) == data


def goog4_headers(
    method: str, url: str, headers: dict[str, str], body: bytes, key_id: str, secret: str, now: datetime
) -> dict[str, str]:
    """The headers of a request with Google's V4 HMAC signature over all of them; no header may be `x-amz-`.

    `url` is percent-encoded, without a query. Google tolerates 15 minutes of difference in `now`.
    """
    parts = urlsplit(url)
    stamp, scope = f"{now:%Y%m%dT%H%M%SZ}", f"{now:%Y%m%d}/auto/storage/goog4_request"
    digest = hashlib.sha256(body).hexdigest()
    signed = headers | {"host": parts.netloc, "x-goog-content-sha256": digest, "x-goog-date": stamp}
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name].strip()}\n" for name in sorted(signed))
    request = f"{method}\n{parts.path}\n\n{lines}\n{names}\n{digest}"
    to_sign = f"GOOG4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"GOOG4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    credential = f"GOOG4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    return signed | {"authorization": credential}
