"""Every question to a cloud or to SkyPilot has an end: one without an answer keeps a thread of its own, nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TypeVar

from configs.errors import SpecsweepError

Answer = TypeVar("Answer")

REQUEST_S = 90.0  # for one question to a cloud, and for a `down` that its cloud has seen to; both take seconds
LOOK_S = 300.0  # for any other: a server just started on a busy machine took over 90 s, a catalogue may be fetched

DOWN_S = 180.0
"""For SkyPilot to end a machine that nobody else can end: some clouds take minutes. With `PATIENCE_S` for its cloud
before, it is less than a flow has to end after Ctrl-C (`CLOUD_STOP_S`): so it can still say what is left."""


class NoAnswer(SpecsweepError, TimeoutError):
    """Nobody has answered in time: what was asked for may have happened, or may happen yet."""


class MayYetCome(NoAnswer):
    """Nor could the request be cancelled: it may still end the next machine of that name."""


def asked(question: Callable[[], Answer]) -> Future[Answer]:
    """Ask in a daemon thread, which no exit waits for, with the caller's context: SkyPilot's SDK needs that."""
    answer: Future[Answer] = Future()

    def ask() -> None:
        try:
            answer.set_result(question())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=copy_context().run, args=(ask,), name="question", daemon=True).start()
    return answer


def answer_of(answer: Future[Answer], within_s: float) -> Answer:
    """The answer, or what the question raises; NoAnswer: there is none within so many seconds."""
    if not wait([answer], within_s).done:
        raise NoAnswer(f"no answer within {within_s:.0f} s")
    return answer.result()


def answered(question: Callable[[], Answer], within_s: float) -> Answer:
    """Ask, and wait for the answer (see `answer_of`)."""
    return answer_of(asked(question), within_s)
