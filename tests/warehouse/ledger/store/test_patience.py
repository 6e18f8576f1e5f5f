"""A store that is away: waited for, told once, no witness; one that refuses; and the same run on a folder and on S3."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from configs.errors import SpecsweepError
from tests.busy_machine import BUSY_MACHINE, PATIENCE_S
from tests.fake_run import FakeRun
from tests.warehouse.ledger.store.conftest import BUCKET, S3Server
from tests.warehouse.ledger.store.fake_google import Fake, serving
from warehouse.dataset.snapshot import publish, read_current
from warehouse.ledger.store import Store, StoreAway, StoreError, open_store
from warehouse.ledger.store.proof import check_store, require_create_only
from warehouse.ledger.store.protocol import Passing, Patience

BEATEN_AT_S, NOW_S = 1_790_000_000, 1_790_003_600  # an hour apart, by the server's clock


class MoodyS3(Fake):
    """A FAKE S3 that answers as many requests as it is told with a status of trouble, then properly."""

    guard: threading.Lock
    troubles: list[int]
    code = ""
    asked: list[str]

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_HEAD()

    def do_GET(self) -> None:
        self.in_its_mood(b"there")

    def do_HEAD(self) -> None:
        self.in_its_mood(b"")

    def in_its_mood(self, body: bytes) -> None:
        with self.guard:
            self.asked.append(self.command)
            status = self.troubles.pop() if self.troubles else 200
        if status != 200 and self.code:
            body = f"<Error><Code>{self.code}</Code></Error>".encode()
        now, beaten = (formatdate(each, usegmt=True) for each in (NOW_S, BEATEN_AT_S))
        self.answer(status, body, **{"Date": now, "Last-Modified": beaten})


class Clock:
    """Time that passes only while somebody sleeps, so that a busy machine uses up nobody's patience."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def moody(s3_environment: pytest.MonkeyPatch) -> Iterator[type[MoodyS3]]:
    s3_environment.setattr("warehouse.ledger.store.protocol.TOLD_AFTER_S", 0.0)
    with serving(MoodyS3, guard=threading.Lock(), troubles=[], asked=[]) as (url, handler):
        s3_environment.setenv("AWS_ENDPOINT_URL", url)
        yield handler


@pytest.fixture
def store(moody: type[MoodyS3]) -> Store:
    return open_store("s3://bucket/prefix")


def test_many_threads_outlast_an_absence(store: Store, moody: type[MoodyS3], capfd: pytest.CaptureFixture[str]) -> None:
    assert store.get("key") == b"there"
    moody.troubles += [503] * 60
    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(store.get, ["key"] * 20)) == {b"there"}, "nobody used up the tries of another"
    away, back = capfd.readouterr().err.splitlines()
    assert "s3://bucket/prefix is away" in away and "503" in away and "back after" in back


def test_while_another_still_waits_the_store_is_not_back_and_what_was_asked_before_its_return_is_no_absence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr("warehouse.ledger.store.protocol.TOLD_AFTER_S", 0.0)
    monkeypatch.setattr("warehouse.ledger.store.protocol.time", clock)
    patience = Patience("s3://bucket", is_known=True)

    def asks(*within: Callable[[], object]) -> Callable[[], str]:
        """A call that fails while others ask, one at each try, and then is answered."""
        left = [*within]

        def call() -> str:
            if not left:
                return "there"
            left.pop(0)()
            raise Passing("503")

        return call

    second = asks(lambda: None)
    assert patience.ask(asks(lambda: None, lambda: patience.ask(second))) == "there"
    away, back = capfd.readouterr().err.splitlines()
    assert "is away" in away and "is back" in back, "the second came and went while the first was waiting"
    assert patience.ask(asks(lambda: patience.ask(asks(lambda: None)))) == "there"
    away, back = capfd.readouterr().err.splitlines()
    assert "is away" in away and "is back" in back, "the first had asked before the second saw it return"


@pytest.mark.parametrize(
    ("code", "troubles"),
    [*(("", [status] * 2) for status in (408, 429, 500, 503)), ("SlowDown", [400, 403]), ("ExpiredToken", [400, 403])],
)
def test_a_write_is_tried_again_in_trouble(store: Store, moody: type[MoodyS3], code: str, troubles: list[int]) -> None:
    moody.code, moody.troubles = code, [*troubles]
    assert store.put_new("key", b"mine")
    assert moody.asked == ["PUT"] * 3


def test_a_refusal_is_no_absence(store: Store, moody: type[MoodyS3]) -> None:
    moody.troubles += [403]
    with pytest.raises(StoreError, match="can't write s3://bucket/prefix/key") as refused:
        store.put_new("key", b"mine")
    assert not isinstance(refused.value, StoreAway)
    assert moody.asked == ["PUT"]


def test_patience_ends_and_says_what_to_check(
    moody: type[MoodyS3], s3_environment: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    s3_environment.setattr("warehouse.ledger.store.protocol.time", Clock())
    s3_environment.setenv("SPECSWEEP_STORE_AWAY_S", "10")
    moody.troubles += [503] * 100
    with pytest.raises(StoreAway, match="AWS_ENDPOINT_URL"):
        open_store("s3://bucket/prefix", is_known=True).get("key")
    assert 5 < len(moody.asked) < 20, "pauses grow"
    assert "is away" in capfd.readouterr().err


def test_silence_counts_from_the_stores_return(store: Store, moody: type[MoodyS3]) -> None:
    assert store.silence_s("heartbeat.json") == store.age_s("heartbeat.json") == NOW_S - BEATEN_AT_S
    moody.troubles += [503]
    silence_s = store.silence_s("heartbeat.json")
    assert silence_s is not None and silence_s < 60, "nobody could have written while it was away"
    assert store.age_s("heartbeat.json") == NOW_S - BEATEN_AT_S


@pytest.mark.parametrize(
    ("variable", "value"), [("SPECSWEEP_STORE_AWAY_S", "soon"), ("SPECSWEEP_STORE_CONNECTIONS", "0")]
)
def test_a_setting_that_is_no_number_is_named(
    moody: type[MoodyS3], s3_environment: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    s3_environment.setenv(variable, value)
    with pytest.raises(SpecsweepError, match=f"{variable}='{value}'"):
        open_store("s3://bucket/prefix")


def test_who_must_end_waits_for_seconds(store: Store, moody: type[MoodyS3], s3_environment: pytest.MonkeyPatch) -> None:
    s3_environment.setattr("warehouse.ledger.store.protocol.HURRIED_S", 0.0)
    assert store.get("key") == b"there"
    moody.troubles += [503] * 10_000
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.get, "key")
        while len(moody.asked) < 3:
            assert not waiting.done()
        store.hurry()
        with pytest.raises(StoreAway):
            waiting.result(timeout=PATIENCE_S)
    with pytest.raises(StoreAway):
        store.get("key")


MEASURED_NOT_CHOSEN = (
    "tok_s", "tok_s_lo", "tok_s_hi", "cv", "repeat_sd", "start_sd", "ttft_ms", "tpot_ms", "chars_s", "gpu_s",
    "cost_usd", "usd_per_mtok", "mbu", "measured_at", "argv", "details", "speedup", "speedup_lo", "speedup_hi",
    "attempts", "attempt",
)  # fmt: skip
"""Columns that differ between two runs of the same cell; every other one must not."""


TOKEN_S = "0.003"  # of the fake engine: slow enough that its repeats agree on a busy machine, too


def contents(url: str) -> pl.DataFrame:
    store = open_store(url)
    publish(store)
    chosen = read_current(store).drop(MEASURED_NOT_CHOSEN)
    chosen = chosen.with_columns(reasons=pl.col("reasons").list.filter(~pl.element().is_in([*BUSY_MACHINE])))
    others = pl.col("reasons").list.len() > 0
    return chosen.with_columns(verdict=pl.when(others).then(pl.col("verdict")).otherwise(pl.lit("ok")))


@pytest.fixture
def local_contents(tmp_path: Path, node_python: Path) -> pl.DataFrame:
    (tmp_path / "local").mkdir()
    run = FakeRun(tmp_path / "local", "mtp")
    assert run.finish(node_python, FAKE_ENGINE_TOKEN_S=TOKEN_S)[0] == 0
    return contents(run.store_url)


@pytest.mark.slow(47)
@pytest.mark.parametrize("s3_server", ["moto"], indirect=True)
def test_a_run_on_moto_gives_the_same_snapshot(
    tmp_path: Path, node_python: Path, s3_server: S3Server, local_contents: pl.DataFrame
) -> None:
    run = FakeRun(tmp_path, "mtp", store_url=f"s3://{BUCKET}/team/a")
    code, said = run.finish(node_python, FAKE_ENGINE_TOKEN_S=TOKEN_S)
    assert code == 0, said
    assert_frame_equal(contents(run.store_url), local_contents)


@pytest.mark.slow(38)
@pytest.mark.parametrize("s3_server", ["ministack"], indirect=True)
def test_a_server_killed_in_the_middle_loses_nothing(
    tmp_path: Path, node_python: Path, s3_server: S3Server, local_contents: pl.DataFrame
) -> None:
    run = FakeRun(tmp_path, "mtp", store_url=f"s3://{BUCKET}/team/a")
    runner = run.start(node_python, FAKE_ENGINE_TOKEN_S=TOKEN_S)
    parts = f"{run.ledger.step_root(run.key, 'throughput')}/parts"
    deadline = time.monotonic() + PATIENCE_S
    while len(run.ledger.store.list(parts)) < 3:
        assert time.monotonic() < deadline and runner.poll() is None, "no parts arrived"
        time.sleep(0.05)
    s3_server.kill()
    s3_server.start()
    said, _ = runner.communicate(timeout=PATIENCE_S)
    assert runner.returncode == 0, said
    assert_frame_equal(contents(run.store_url), local_contents)


@pytest.mark.parametrize("s3_server", ["rclone"], indirect=True)
def test_a_server_that_ignores_create_only_is_refused(s3_server: S3Server) -> None:
    store = open_store(f"s3://{BUCKET}/x")
    failed = {check.name: check.remedy for check in check_store(store) if not check.ok}
    assert "use AWS S3" in failed["create-only is honoured"]
    with pytest.raises(StoreError, match="ignores create-only"):
        require_create_only(store)


@pytest.mark.slow(2)
@pytest.mark.parametrize("s3_server", ["moto", "ministack"], indirect=True)
def test_a_server_that_honours_it_is_trusted(s3_server: S3Server) -> None:
    store = open_store(f"s3://{BUCKET}/x")
    assert [check.name for check in check_store(store) if not check.ok] == []
    require_create_only(store)
    assert store.list("") == [], "the self-test leaves nothing behind"
