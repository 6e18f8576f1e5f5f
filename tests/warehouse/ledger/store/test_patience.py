"""A store that is away: waited for, told once, no witness; and one that refuses, which is asked once."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate

import pytest

from configs.errors import SpecsweepError
from tests.warehouse.ledger.store.fake_google import Fake, serving
from warehouse.ledger.store import Store, StoreAway, StoreError, open_store
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
    moody.code, moody.troubles = code, troubles
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
            waiting.result(timeout=60)
    with pytest.raises(StoreAway):
        store.get("key")
