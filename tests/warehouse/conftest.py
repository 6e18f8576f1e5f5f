"""Stores to test against: a folder, S3 as moto serves it, and Google's look-alike."""

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from lab.control.creates import create_one_at_a_time
from tests.warehouse.ledger.store.fake_google import KEY_ID, SECRET, FakeGoogle, serving
from warehouse.ledger.store import Store, open_store

BUCKET = "sweeps"


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    create_one_at_a_time()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # which keeps the keys that it saw first
    return monkeypatch


@pytest.fixture
def s3_store_url(moto_url: str, s3_environment: pytest.MonkeyPatch) -> str:
    s3_environment.setenv("AWS_ENDPOINT_URL", moto_url)
    boto3.client("s3", endpoint_url=moto_url).create_bucket(Bucket=BUCKET)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def google(s3_environment: pytest.MonkeyPatch) -> Iterator[type[FakeGoogle]]:
    with serving(FakeGoogle, objects={}, lock=threading.Lock(), failures=[]) as (url, handler):
        for name, value in {"GS_ENDPOINT_URL": url, "GS_ACCESS_KEY_ID": KEY_ID, "GS_SECRET_ACCESS_KEY": SECRET}.items():
            s3_environment.setenv(name, value)
        yield handler


@pytest.fixture
def gs_store_url(google: type[FakeGoogle]) -> str:
    return f"gs://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture(params=["local", "s3", "gs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    local = request.param == "local"
    return open_store(str(tmp_path / "store") if local else request.getfixturevalue(f"{request.param}_store_url"))


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))
