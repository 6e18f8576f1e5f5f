"""Real S3 servers on loopback, in the environment that holds them."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import httpx
import pytest
from botocore.config import Config

from configs.checkout import ROOT
from tasks.engine.server import free_port
from tasks.host.environments import ensure
from tests.busy_machine import PATIENCE_S

KEYS = {"AWS_ACCESS_KEY_ID": "testaccesskey", "AWS_SECRET_ACCESS_KEY": "testsecretkey1"}
KEYS |= {"AWS_DEFAULT_REGION": "us-east-1"}
BUCKET = "sweeps"

MOTO = """
from lab.control.creates import create_one_at_a_time
from moto.server import main
create_one_at_a_time()
main()
"""


class S3Server:
    """One server process that can be killed and started again on the same port and disk."""

    def __init__(self, argv: list[str], port: int, env: dict[str, str], log: Path) -> None:
        self.argv, self.port, self.env, self.log = argv, port, env, log
        self.url = f"http://127.0.0.1:{port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            env = os.environ | self.env
            self.process = subprocess.Popen(self.argv, env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            try:
                httpx.get(self.url, timeout=2, trust_env=False)
                return
            except httpx.TransportError:
                assert time.monotonic() < deadline, "the S3 server did not answer"
                time.sleep(0.05)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def make_bucket(self) -> None:
        client = boto3.client("s3", endpoint_url=self.url, config=Config(s3={"addressing_style": "path"}))
        client.create_bucket(Bucket=BUCKET)
        client.close()


def environment_bin(name: str) -> Path:
    return ensure(name).parent  # type: ignore[arg-type]


def make_server(kind: str, folder: Path) -> S3Server:
    port, disk, env = free_port(), folder / "disk", dict[str, str]()
    disk.mkdir()
    if kind == "moto":
        argv = [environment_bin("dev") / "python", "-c", MOTO, "-H", "127.0.0.1", "-p", port]
        env = {"PYTHONPATH": str(ROOT)}
    elif kind == "ministack":
        argv = [environment_bin("s3servers") / "ministack"]
        env = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "SERVICES": "s3", "S3_PERSIST": "1"}
        env["S3_DATA_DIR"] = str(disk)
    else:
        assert kind == "rclone"
        key = f"{KEYS['AWS_ACCESS_KEY_ID']},{KEYS['AWS_SECRET_ACCESS_KEY']}"
        argv = [environment_bin("s3servers") / "rclone", "serve", "s3", "--addr", f"127.0.0.1:{port}"]
        argv += ["--auth-key", key, disk]
    return S3Server([str(word) for word in argv], port, env, folder / "server.log")


@pytest.fixture
def s3_server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server that the test's parameter names, with an empty bucket; this process's boto3 is pointed at it."""
    server = make_server(request.param, tmp_path)
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": server.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # which keeps the keys that it saw first
    server.start()
    try:
        server.make_bucket()
        yield server
    finally:
        server.kill()
