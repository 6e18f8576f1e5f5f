"""What a flow asks about itself: was its run cancelled, does Prefect hear how it ended, does another night live?

Prefect 3.8.8 listens for a cancel in the worker and beside each flow. Both stop for good when the server was away for
half a minute. So the flow asks, too. A server that does not answer is a missing witness: it ends nothing. Nor does a
worker that is gone, which read what the flow prints.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from functools import partial
from uuid import UUID

from prefect import runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL
from prefect.states import Running
from rich.console import Console

from configs.errors import SpecsweepError
from flows.clock import StoppableClock
from flows.flow_heartbeat import HeldCells
from flows.telling import once_in_a_row
from warehouse.ledger.claims import ManagedElsewhere
from warehouse.ledger.commits import Ledger
from warehouse.ledger.owner import in_words
from warehouse.ledger.store import Store, until_back

ASK_PREFECT_S = 10.0  # as often as Prefect's own listeners; a cancel has 30 s where those still listen
PREFECT_AWAY_S = 3600.0  # how long a flow whose clusters are down waits to say how it ended
ANSWER_S = 30.0  # for one answer; a server whose database is locked takes long
DENIAL = "it was taken for dead, and lives"  # message of the state in which a flow run that was Crashed goes on


def outlive_reader() -> None:
    """Drop what this process prints once nobody reads it: rich, which prints Prefect's logs, would end the process."""
    setattr(Console, "on_broken_pipe", lambda console: None)  # noqa: B010  # of a line that is just being written

    def watch() -> None:
        poll, read = select.poll(), {1, 2}
        for stream in read:
            poll.register(stream, 0)  # only that its reader is gone
        nowhere = os.open(os.devnull, os.O_WRONLY)
        while read:
            for stream, _ in poll.poll():
                os.dup2(nowhere, stream)
                poll.unregister(stream)
                read.remove(stream)

    threading.Thread(target=watch, name="outlive-reader", daemon=True).start()


def _own_id() -> UUID | None:
    """This process's flow run; None: there is none, or its server is its own and ends with it."""
    return UUID(runtime.flow_run.id) if PREFECT_API_URL.value() and runtime.flow_run.id else None


def _client() -> SyncPrefectClient:
    """A new client: one that was connected tries for a minute, and a new one says at once that nobody answers."""
    return get_client(sync_client=True, httpx_settings={"timeout": ANSWER_S})


def starts(tell: Callable[[str], None]) -> int:
    """How often this flow run was started: without the crashes that it denied, each of which Prefect counts, too."""
    count = runtime.flow_run.run_count or 0
    if count <= 1 or (own := _own_id()) is None:
        return count
    try:
        with _client() as client:
            return count - sum(state.message == DENIAL for state in client.read_flow_run_states(own))
    except Exception as error:  # it may be away again; nodes that measure are not left for that
        tell(f"Prefect does not say which crashes were denied: {type(error).__name__}: {error}")
        return count


@contextmanager
def cancel_heard(stop: Callable[[str], None], tell: Callable[[str], None]) -> Iterator[None]:
    """Ask Prefect about this process's flow run, at once and again and again until the block ends.

    `stop` gets why the flow must end; `tell` gets why Prefect can't be asked, each sentence once in a row.
    """
    over, told = threading.Event(), once_in_a_row(tell)

    def ask(own: UUID) -> None:
        while not over.is_set():
            try:
                _heed(own, stop, over)
                told("")
            except ObjectNotFound:
                return  # it was deleted in Prefect, where nobody can cancel it any more
            except Exception as error:  # whatever ails Prefect's server, nodes that measure well know nothing of it
                said = f"{type(error).__name__}: {error}"
                told(f"Prefect can't be asked whether the run was cancelled, and the run goes on: {said}")
            over.wait(ASK_PREFECT_S)

    if (own := _own_id()) is not None:  # Prefect's settings are in the context
        threading.Thread(target=copy_context().run, args=(ask, own), name="own-run", daemon=True).start()
    try:
        yield
    finally:
        over.set()  # the thread is not waited for: an answer may take long


def _heed(own: UUID, stop: Callable[[str], None], over: threading.Event) -> None:
    with _client() as client:
        state = client.read_flow_run(own).state
        if state is None or over.is_set():
            return
        if state.is_cancelling() or state.is_cancelled():
            stop("the run was cancelled in Prefect")
        elif state.is_crashed() or state.is_scheduled():
            # `flows.automations` took a server's absence for the run's silence, and would start it a second time
            client.set_flow_run_state(own, Running(message=DENIAL), force=True)


def until_prefect_answers(tell: Callable[[str], None]) -> None:
    """Wait until Prefect can be told how the flow ends, `PREFECT_AWAY_S` at most; what is rented must be down."""
    own, until_s, told = _own_id(), time.monotonic() + PREFECT_AWAY_S, once_in_a_row(tell)
    while own is not None and time.monotonic() < until_s:
        try:
            with _client() as client:
                client.read_flow_run(own)
                return
        except ObjectNotFound:
            return
        except Exception as error:  # the run is published, whatever Prefect knows of it
            told(f"Prefect can't be told how the run ended, and is waited for: {type(error).__name__}: {error}")
        time.sleep(ASK_PREFECT_S)


class AnotherNight(SpecsweepError):
    """An earlier night of the sweep still runs; the text says whose it is."""


@contextmanager
def only_night(store: Store, sweep: str, tell: Callable[[str], None], *, again: bool) -> Iterator[None]:
    """Be the one flow that runs nights of a sweep. Raises AnotherNight: another one does, and lives.

    `again`: the flow run was started before. It waits instead, as its own earlier process may still count as alive.
    Raises FlowStopped: it was cancelled meanwhile.
    """
    told, clock = once_in_a_row(tell), StoppableClock()
    pause = partial(clock.sleep, ASK_PREFECT_S)
    with HeldCells(Ledger(store, sweep, under="sweeps"), tell) as held, ExitStack() as night:
        with cancel_heard(clock.stop, tell):
            while True:
                try:
                    until_back(lambda: night.enter_context(held.managing("night")), pause)
                    break
                except ManagedElsewhere as other:
                    said = f"an earlier night of {sweep} still runs ({in_words(other.owner)})"
                    if not again:
                        raise AnotherNight(f"{said}: this one ends") from other
                    told(f"{said}: waiting for it")
                pause()
        yield
