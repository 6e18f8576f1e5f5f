"""Waiting for a store that is away: by elapsed time, with growing pauses and jitter, and told once."""

from __future__ import annotations

import math
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from configs.errors import SpecsweepError
from warehouse.clock import duration

AWAY_VARIABLE = "SPECSWEEP_STORE_AWAY_S"
"""Environment variable: for how long a store that was there may be away before what needs it fails."""

AWAY_S = 300.0
"""Unless that variable says otherwise. A network that is being changed and a bucket that answers SlowDown are back
within minutes; what waits bills a GPU meanwhile, and what gives up loses one."""

UNSEEN_S = 20.0
"""For a store that has not answered yet: its address, its network or its server is more likely wrong than away."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0

TOLD_AFTER_S = 3.0
"""Absences shorter than this are nobody's concern."""


_Answer = TypeVar("_Answer")


class Passing(Exception):
    """An answer, or none, that may be another one soon; the text says which."""


class Patience:
    """What the threads that share a store wait with: they tell of an absence, and of its end, once together."""

    def __init__(self, url: str, *, is_known: bool) -> None:
        """Nothing is asked yet.

        Args:
            url: of the store, for what is told.
            is_known: it answered to somebody else before (a node's store), so that it is away and not misspelt.

        Raises:
            SpecsweepError: the environment variable is no number of seconds.
        """
        self._url, self._answered, self._is_told, self._back_at_s = url, is_known, False, -math.inf
        self._away_s = _away_s()
        self._guard, self._waiting = threading.Lock(), 0

    def ask(self, call: Callable[[], _Answer]) -> _Answer:
        """The answer of `call`, asked again while it raises `Passing`.

        Each caller waits by its own clock: many that wait at once use up nobody's tries.

        Raises:
            Passing: it still did when patience was over.
        """
        since_s, pause_s, was_away = time.monotonic(), FIRST_PAUSE_S, False
        while True:
            asked_at_s = time.monotonic()
            try:
                answer = call()
            except Passing as error:
                away_s, most_s = time.monotonic() - since_s, self._most_s()
                if not was_away and away_s >= min(TOLD_AFTER_S, most_s):
                    was_away = self._is_away(error, most_s, asked_at_s)
                if away_s >= most_s:
                    self._leave(was_away=was_away)
                    raise
                time.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            except BaseException:
                self._leave(was_away=was_away)
                raise
            else:
                self._answered = True
                self._leave(was_away=was_away, taken_s=time.monotonic() - since_s)
                return answer

    def _most_s(self) -> float:
        return self._away_s if self._answered else min(UNSEEN_S, self._away_s)

    def _is_away(self, error: Passing, most_s: float, asked_at_s: float) -> bool:
        """Tells of it, once; what was asked before the store's last return says nothing about it since."""
        with self._guard:
            if asked_at_s < self._back_at_s:
                return False
            self._waiting += 1
            if not self._is_told:
                self._is_told = True
                _say(f"the store {self._url} is away ({error}): trying for {duration(most_s)}, nothing is lost")
            return True

    def back_s(self) -> float:
        """Seconds since the store's last return; infinite if it never was away."""
        return time.monotonic() - self._back_at_s

    def _leave(self, *, was_away: bool, taken_s: float | None = None) -> None:
        """The caller waits no more; with an answer, after so many seconds, the last who waited tells of the return."""
        if not was_away:
            return
        with self._guard:
            self._waiting -= 1
            if taken_s is None:
                return
            self._back_at_s = time.monotonic()
            if self._is_told and not self._waiting:
                self._is_told = False
                _say(f"the store {self._url} is back after {duration(taken_s)}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _away_s() -> float:
    said = os.environ.get(AWAY_VARIABLE, "")
    try:
        seconds = float(said or AWAY_S)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise SpecsweepError(f"{AWAY_VARIABLE}={said!r}: give seconds, such as {AWAY_S:.0f}")
    return seconds
