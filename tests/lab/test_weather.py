"""Weather at the lab's door: real S3 and EC2 servers behind it, real clients before it."""

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, ReadTimeoutError
from typer.testing import CliRunner

from flows.terminal.cli import app
from lab.errors import LabError
from lab.weather.conditions import Conditions
from lab.weather.door import Door
from lab.weather.settings import clear_weather, set_weather
from tests.busy_machine import PATIENCE_S
from tests.warehouse.ledger.store.conftest import BUCKET, KEYS, S3Server, make_server

Client = Callable[..., Any]


@pytest.fixture(scope="module", params=["moto", "ministack"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    made = make_server(request.param, tmp_path_factory.mktemp("server"))
    made.start()
    yield made
    made.kill()


@pytest.fixture
def weather(tmp_path: Path) -> Conditions:
    return Conditions(tmp_path / "weather.json")


@pytest.fixture
def client(server: S3Server, weather: Conditions) -> Iterator[Client]:
    """Makes clients that come to the door; each tries once."""
    draws = iter([0.1, 0.9] * 50)
    door = Door(weather, server.port, lambda: next(draws))
    stopped: queue.Queue[Callable[[], object]] = queue.Queue()

    async def serve() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        serving = asyncio.create_task(door.serve())
        stopped.put(lambda: loop.call_soon_threadsafe(stop.set))
        await stop.wait()
        serving.cancel()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    made: list[Any] = []

    def make(service: str = "s3", region: str = "us-east-1", port: int = door.port, patience_s: int = 60) -> Any:
        config = Config(retries={"total_max_attempts": 1}, read_timeout=patience_s, s3={"addressing_style": "path"})
        keys = {name: KEYS[name.upper()] for name in ("aws_access_key_id", "aws_secret_access_key")}
        url = f"http://127.0.0.1:{port}"
        made.append(boto3.client(service, region_name=region, endpoint_url=url, config=config, **keys))
        return made[-1]

    make(port=server.port).create_bucket(Bucket=BUCKET)
    yield make
    for each in made:
        each.close()
    stopped.get()()
    thread.join()


def put(s3: Any, key: str, **how: str) -> None:
    s3.put_object(Bucket=BUCKET, Key=key, Body=b"x" * 300_000, **how)


def refused(call: Callable[[], Any]) -> tuple[str, int]:
    with pytest.raises(ClientError) as caught:
        call()
    return caught.value.response["Error"]["Code"], caught.value.response["ResponseMetadata"]["HTTPStatusCode"]


def keys(s3: Any) -> set[str]:
    return {each["Key"] for each in s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])}


def rent(ec2: Any, **how: Any) -> Any:
    return ec2.run_instances(ImageId="ami-1e749f67", InstanceType="p5.4xlarge", MinCount=1, MaxCount=1, **how)


@pytest.mark.slow(2)
def test_in_fine_weather_it_is_not_noticed(client: Client, server: S3Server) -> None:
    s3 = client()
    put(s3, "fine", IfNoneMatch="*")
    assert len(s3.get_object(Bucket=BUCKET, Key="fine")["Body"].read()) == 300_000
    assert s3.head_object(Bucket=BUCKET, Key="fine")["ContentLength"] == 300_000
    assert refused(lambda: put(s3, "fine", IfNoneMatch="*"))[0] == "PreconditionFailed"
    assert refused(lambda: s3.get_object(Bucket=BUCKET, Key="none")) == ("NoSuchKey", 404)
    s3.delete_object(Bucket=BUCKET, Key="fine")
    assert "fine" not in keys(client(port=server.port))


CLOSED = [(what, ConnectionClosedError) for what in ("away", "cut", "lost-answer")]


@pytest.mark.parametrize(("what", "error"), [*CLOSED, ("half-open", ReadTimeoutError), ("slow-down", ClientError)])
def test_a_write_in_bad_weather_fails_as_it_says(
    client: Client, server: S3Server, weather: Conditions, what: str, error: type[Exception]
) -> None:
    s3, behind = client(patience_s=1 if what == "half-open" else 60), client(port=server.port)
    put(s3, "before")
    is_share = what in ("cut", "lost-answer", "slow-down")
    set_weather(weather, "store", what, 0.5 if is_share else None)
    with pytest.raises(error):
        put(s3, what)  # over the connection that is open already
    assert (what in keys(behind)) is (what == "lost-answer"), "whether it has happened all the same"
    if is_share:
        put(s3, f"{what} of the other half")
    clear_weather(weather, "store")
    put(s3, f"after {what}")
    assert f"after {what}" in keys(s3)


def test_slow_down_and_conflict_are_said_as_s3_says_them(client: Client, weather: Conditions) -> None:
    s3 = client()
    set_weather(weather, "store", "conflict")
    assert refused(lambda: put(s3, "new", IfNoneMatch="*")) == ("ConditionalRequestConflict", 409)
    put(s3, "overwritten")
    set_weather(weather, "store", "slow-down")
    assert refused(lambda: put(s3, "overwritten")) == ("SlowDown", 503)
    assert refused(lambda: s3.head_object(Bucket=BUCKET, Key="overwritten"))[1] == 503
    clear_weather(weather)
    put(s3, "new", IfNoneMatch="*")


def test_delay_is_waited_and_weather_clears_by_itself(client: Client, weather: Conditions) -> None:
    s3 = client()
    set_weather(weather, "store", "delay", 0.4)
    begun_s = time.monotonic()
    put(s3, "late")
    assert time.monotonic() - begun_s >= 0.4
    clear_weather(weather, "store")
    set_weather(weather, "store", "away", lasts_s=3)
    with pytest.raises(BotoCoreError):
        put(s3, "gone")
    deadline = time.monotonic() + PATIENCE_S
    while weather.now():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    put(s3, "back")


@pytest.mark.parametrize("server", ["moto"], indirect=True)
def test_a_region_refuses_and_the_store_does_not_mind(client: Client, weather: Conditions) -> None:
    east, west = client("ec2"), client("ec2", "us-west-2")
    set_weather(weather, "us-east-1", "unauthorized")
    assert refused(east.describe_instances) == ("UnauthorizedOperation", 403)
    west.describe_instances()
    put(client(), "while the region refuses")
    clear_weather(weather)
    set_weather(weather, "us-west-2", "quota")
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
    assert refused(lambda: rent(west, **spot)) == ("MaxSpotInstanceCountExceeded", 400)
    assert refused(lambda: rent(west)) == ("VcpuLimitExceeded", 400)
    assert west.describe_instances()["Reservations"] == []
    assert len(rent(east, **spot)["Instances"]) == 1
    set_weather(weather, "cloud", "quota")
    assert refused(lambda: rent(east, **spot))[0] == "MaxSpotInstanceCountExceeded"
    set_weather(weather, "cloud", "away")
    with pytest.raises(ConnectionClosedError):
        east.describe_instances()
    put(client(), "while the cloud is away")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("stoer", "away", None, None), "there is no weather at 'stoer'. Remedy: one of store, cloud, machines"),
        (("store", "quota", None, None), "there is no weather 'quota' at store. Remedy: one of away"),
        (("cloud", "conflict", None, None), "there is no weather 'conflict' at cloud"),
        (("store", "delay", None, None), "store delay needs an amount in seconds"),
        (("store", "cut", 2.0, None), "store cut can't be 2. Remedy: a share"),
        (("store", "away", 0.5, None), "store away has no amount, and 0.5 was given"),
        (("store", "away", None, -1.0), "weather can't last -1 s"),
    ],
)
def test_what_is_no_weather_is_refused(
    weather: Conditions, words: tuple[str, str, float | None, float | None], said: str
) -> None:
    with pytest.raises(LabError) as caught:
        set_weather(weather, *words)
    assert said in str(caught.value)
    assert weather.now() == []


def test_without_a_lab_the_command_says_how_to_get_one() -> None:
    with TemporaryDirectory(dir="/var/tmp") as short:  # sockets lie in a lab
        done = CliRunner().invoke(app, ["cloud-lab", "weather", "--root", f"{short}/lab"])
    assert done.exit_code != 0
    assert "sweep cloud-lab up" in f"{done.output}{done.exception}"
