"""What is refused before anything is trusted to it: a store on which racers win together, or whose clock is off."""

import threading
import time
from contextlib import suppress
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.warehouse.ledger.store.fake_google import KEY_ID, SECRET, FakeGoogle, serving
from warehouse.ledger.store import StoreError, open_store
from warehouse.ledger.store.local import LocalStore
from warehouse.ledger.store.proof import RACERS, check_store, require_create_only


class LooksFirst(LocalStore):
    """A FAKE look-alike that looks whether a key is there, and then writes: honest to one writer after another."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._all_looked = threading.Barrier(RACERS, timeout=10)

    def put_new(self, key: str, data: bytes) -> bool:
        there = self.get(key)
        if there is not None:
            return there == data
        with suppress(threading.BrokenBarrierError):  # it came alone
            self._all_looked.wait()
        self.put(key, data)
        return True


def test_a_store_on_which_racers_win_together_is_refused_by_the_flow_as_by_the_doctor(tmp_path: Path) -> None:
    store = LooksFirst(tmp_path)
    with pytest.raises(StoreError, match=f"{RACERS} of {RACERS} writers .* won; use AWS S3"):
        require_create_only(store)
    assert [check.name for check in check_store(store) if not check.ok] == ["a race has one winner"]
    assert store.list("probe") == []


class OffClock(FakeGoogle):
    """A FAKE whose clock is ahead by `clock_s`; a proxy before it dates its answers by `proxy_s` more."""

    clock_s = 0.0
    proxy_s = 0.0

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(time.time() + self.clock_s, usegmt=True)

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        date = formatdate(time.time() + self.clock_s + self.proxy_s, usegmt=True)
        super().answer(status, body, **{"Date": date} | headers)


@pytest.mark.parametrize(
    ("clock_s", "proxy_s", "said"),
    [
        (90.0, 0.0, r"the store's clock is \d+ s ahead of this machine's .* 30 s .*; set this machine's clock"),
        (-90.0, 0.0, r"the store's clock is \d+ s behind this machine's .* 30 s .*; set this machine's clock"),
        (0.0, 90.0, r"a fresh object is \d+ s old .* 30 s .*; set the clocks of the store's servers"),
        (0.0, -90.0, r"a fresh object is -\d+ s old .* 30 s .*; set the clocks of the store's servers"),
        (10.0, 0.0, None),
    ],
)
def test_a_store_whose_clock_is_off_is_refused_in_one_line(
    clock_s: float, proxy_s: float, said: str | None, s3_environment: pytest.MonkeyPatch
) -> None:
    fresh = {"objects": {}, "lock": threading.Lock(), "failures": [], "clock_s": clock_s, "proxy_s": proxy_s}
    with serving(OffClock, **fresh) as (url, _):
        for name, value in {"GS_ENDPOINT_URL": url, "GS_ACCESS_KEY_ID": KEY_ID, "GS_SECRET_ACCESS_KEY": SECRET}.items():
            s3_environment.setenv(name, value)
        store = open_store("gs://sweeps/x")
        assert all(check.ok for check in check_store(store)) == (said is None)
        if said is None:
            require_create_only(store)
        else:
            with pytest.raises(StoreError, match=said) as refused:
                require_create_only(store)
            assert len(str(refused.value).splitlines()) == 1
