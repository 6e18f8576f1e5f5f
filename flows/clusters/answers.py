"""Every question to a cloud or to SkyPilot has an end: one without an answer keeps a thread of its own, nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TypeVar

from configs.errors import SpecsweepError

Answer = TypeVar("Answer")

LOOK_S = 300.0  # for a list of all that is rented: it may start SkyPilot's server, or ask every region of a cloud
DOWN_S = 90.0  # for one request, `down` too: SkyPilot takes 1 to 20 s on clouds that end a machine at once


class NoAnswer(SpecsweepError):
    """Nobody has answered in time: what was asked for may have happened, or may happen yet."""


def asked(question: Callable[[], Answer]) -> Future[Answer]:
    """Ask in a daemon thread with the caller's context, where SkyPilot's SDK keeps its server's version."""
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
