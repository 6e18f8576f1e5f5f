"""How work through the response log can end: clients, engines, stores and machines that go away."""

import asyncio

import pytest

from tasks.evals.watch import Standstill
from tests.busy_machine import PATIENCE_S
from tests.tasks.evals.log_case import FakeStore, FakeUpstream, ask, post, question, response_log
from warehouse.ledger.store import StoreError
from warehouse.ledger.tables import Row


async def test_an_engine_that_dies_in_the_middle_is_an_error_and_no_answer() -> None:
    store = FakeStore()
    async with FakeUpstream() as engine, response_log(engine, store) as recorder:
        await ask(recorder, "say one")
        engine.held = True
        cut_off = asyncio.create_task(post(recorder.url(0), question("say two")))
        await engine.asked_for(2)
        await engine.die()
        status, document = await cut_off
        assert status == 503 and "no answer from the engine" in document["error"]["message"]
        why = await asyncio.wait_for(recorder.failed(), PATIENCE_S)
        assert why.startswith("the engine is gone: ")
        assert (await post(recorder.url(0), question("say three")))[0] == 503
        recorder.answers.begin()
        assert await ask(recorder, "say one") == "one", "what is known needs no engine"
    assert [row["body"] for row in store.rows] == ["one"]
    async with response_log(engine, FakeStore()) as recorder:
        why = await asyncio.wait_for(recorder.failed(), PATIENCE_S)
        assert "the engine is gone" in why, "also where it never was there"


async def test_an_engine_without_progress_has_stalled_and_its_requests_end() -> None:
    async with FakeUpstream() as engine:
        engine.held = True
        async with response_log(engine, FakeStore(), stalled_s=0.05, poll_s=0.01) as recorder:
            waiting = asyncio.create_task(post(recorder.url(0), question("say one")))
            why = await asyncio.wait_for(recorder.failed(), PATIENCE_S)
            assert why.startswith("the engine stalled: 1 requests in flight, no token in ")
            status, document = await waiting
            assert status == 503 and "stalled" in document["error"]["message"]
            await engine.was_left(1)


@pytest.mark.parametrize(
    ("seen", "lasts_s"),
    [
        ([(5, 0, 1), (5, 0, 1), (6, 0, 1), (6, 1, 1), (6, 1, 1), (6, 1, 0), (6, 1, 1)], [0, 10, 0, 0, 10, 0, 10]),
        ([(None, 3, 2), (None, 3, 2), (None, 4, 2)], [0, 10, 0]),
    ],
    ids=["tokens", "no-counter"],
)
def test_a_standstill_needs_somebody_who_waits(seen: list[tuple[float | None, int, int]], lasts_s: list[float]) -> None:
    standstill = Standstill(0)
    assert [standstill.lasts_s(10 * number, *each) for number, each in enumerate(seen, 1)] == lasts_s


async def test_an_answer_may_take_as_long_as_its_tokens_come() -> None:
    class Slow(FakeUpstream):
        """Each look at the counter finds one token more; after 40 looks the answer is ready."""

        async def _metrics(self, request: object) -> object:  # type: ignore[override]
            self.generated = (self.generated or 0) + 1
            if self.generated == 40:
                await self.let_go()
            return await super()._metrics(request)  # type: ignore[arg-type]

    async with Slow() as engine:
        engine.held = True
        # 40 looks take ten times as long as a standstill may last
        async with response_log(engine, FakeStore(), stalled_s=0.2, poll_s=0.05) as recorder:
            assert await ask(recorder, "say one") == "one"


async def test_a_client_that_hangs_up_and_asks_again_gets_the_answer_that_was_on_its_way() -> None:
    async with FakeUpstream() as engine, response_log(engine, FakeStore()) as recorder:
        engine.held = True
        impatient = asyncio.create_task(ask(recorder, "say one"))
        await engine.asked_for(1)
        impatient.cancel()
        await asyncio.wait({impatient})
        recorder.answers.begin()  # the framework was killed, and starts again
        again = asyncio.create_task(ask(recorder, "say one"))
        other = asyncio.create_task(ask(recorder, "say two"))
        await engine.asked_for(2)
        await engine.let_go()
        assert (await again, await other) == ("one", "two")
        assert len(engine.asked) == 2 and recorder.count.answered == 2


async def test_leaving_cancels_what_is_in_flight_and_stores_the_rest() -> None:
    store = FakeStore()
    async with FakeUpstream() as engine:
        with pytest.raises(RuntimeError, match="the framework failed"):
            async with response_log(engine, store) as recorder:
                await ask(recorder, "say one")
                engine.held = True
                waiting = asyncio.create_task(post(recorder.url(0), question("say two")))
                await engine.asked_for(2)
                raise RuntimeError("the framework failed")
        assert (await waiting)[0] == 503
        await engine.was_left(1)
    assert [row["body"] for row in store.rows] == ["one"]


async def test_parts_are_written_when_they_are_full_and_when_it_is_time() -> None:
    full, timely = FakeStore(), FakeStore()
    async with FakeUpstream() as engine, response_log(engine, full, flush_items=2) as recorder:
        for word in ("one", "two", "three"):
            await ask(recorder, f"say {word}")
        await until(lambda: len(full.rows) >= 2)
    assert all(len(part) <= 2 for part in full.parts) and len(full.rows) == 3
    async with FakeUpstream() as engine, response_log(engine, timely, flush_s=0.01) as recorder:
        await ask(recorder, "say one")
        await until(lambda: len(timely.rows) == 1)
        await ask(recorder, "say two")
        await until(lambda: len(timely.rows) == 2)


async def test_a_slow_store_gets_one_part_at_a_time_and_holds_nobody_up() -> None:
    gate, writing, parts = asyncio.Event(), [], list[list[Row]]()

    async def write(rows: object) -> None:
        writing.append(rows)
        assert len(writing) == 1, "one part at a time"
        await gate.wait()
        parts.append(list(rows))  # type: ignore[call-overload]
        writing.clear()

    store = FakeStore()
    store.write = write  # type: ignore[method-assign]
    async with FakeUpstream() as engine, response_log(engine, store, flush_items=1) as recorder:
        for number in range(5):
            await ask(recorder, f"say {number}")
        assert parts == [] and recorder.count.answered == 5
        gate.set()
    assert sorted(row["body"] for part in parts for row in part) == ["0", "1", "2", "3", "4"]


async def test_answers_that_cannot_be_stored_end_the_work_and_are_an_error_at_the_end_too() -> None:
    store = FakeStore()
    store.broken = StoreError("the store is full")
    async with FakeUpstream() as engine:
        with pytest.raises(StoreError, match="the store is full"):
            async with response_log(engine, store, flush_items=1) as recorder:
                await ask(recorder, "say one")
                with pytest.raises(StoreError):
                    await asyncio.wait_for(recorder.failed(), PATIENCE_S)
                status, document = await post(recorder.url(0), question("say two"))
                assert status == 503 and "can't be stored" in document["error"]["message"]
                store.broken = None
    assert [row["body"] for row in store.rows] == ["one"], "tried once more, and not lost"
    async with FakeUpstream() as engine:
        with pytest.raises(StoreError):
            async with response_log(engine, store) as recorder:
                await ask(recorder, "say one")
                store.broken = StoreError("gone")


async def until(true: object) -> None:
    """Wait for something that nobody announces, with a deadline."""
    assert callable(true)
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.01)
