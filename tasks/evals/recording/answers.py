"""Which answers are known, and which of several equal requests is asking."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tasks.evals.recording.exchange import is_blank, is_truncated
from warehouse.parts import Row


class Turn(NamedTuple):
    """An occurrence of a request, as one framework job counts them. `job` is the number of that job."""

    request_hash: str
    occurrence: int
    job: int

    @property
    def key(self) -> tuple[str, int]:
        """What tells one answer from another, whichever job asks."""
        return self.request_hash, self.occurrence


class Count(NamedTuple):
    """What a tape has done, and what it holds.

    `asked` requests went to the engine, `replayed` ones did not; `in_flight` are being answered now. `fresh_tokens` are
    those of the answers to `asked`, `generated_tokens` all that the engine generated since the tape began, unfinished
    answers included; None: it does not say. The others are over all `answered`, those of earlier attempts included.
    """

    asked: int
    replayed: int
    in_flight: int
    fresh_tokens: int
    generated_tokens: float | None
    answered: int
    completion_tokens: int
    truncated: int
    blank: int


class Answers:
    """All answers known so far, and the turns of the framework job that is asking now."""

    def __init__(self, known: Iterable[Row]) -> None:
        self._rows: dict[tuple[str, int], Row] = {}
        self._by_prompt: dict[tuple[str, int], list[Row]] = {}
        self._taken: dict[str, set[int]] = {}
        self._job = 0
        self.completion_tokens = 0
        self.truncated = 0
        self.blank = 0
        for row in known:
            self.add(row)

    def add(self, row: Row) -> None:
        """Know one more answer; of two with the same name, the first counts."""
        key = row["request_hash"], row["occurrence"]
        if key in self._rows:
            return
        self._rows[key] = row
        self._by_prompt.setdefault((row["prompt_hash"], row["sample"]), []).append(row)
        self.completion_tokens += row["completion_tokens"] or 0
        self.truncated += is_truncated(row)
        self.blank += is_blank(row)

    def begin(self) -> None:
        """Another framework job begins: it asks from the first occurrence on."""
        self._job += 1
        self._taken.clear()

    def take(self, request_hash: str) -> Turn:
        """The lowest occurrence of the request that is free in this job."""
        taken = self._taken.setdefault(request_hash, set())
        occurrence = next(number for number in range(len(taken) + 1) if number not in taken)
        taken.add(occurrence)
        return Turn(request_hash, occurrence, self._job)

    def give_back(self, turn: Turn) -> None:
        """The request was not answered: whoever repeats it gets the same turn, not the next one."""
        if turn.job == self._job:
            self._taken[turn.request_hash].discard(turn.occurrence)

    def known(self, turn: Turn) -> Row | None:
        """The answer to this turn, if there is one."""
        return self._rows.get(turn.key)

    def rows(self) -> list[Row]:
        """All answers, in the order in which they became known."""
        return list(self._rows.values())

    def to(self, prompt_hash: str, sample: int) -> list[Row]:
        """Answers to a prompt, in order of occurrence."""
        return sorted(self._by_prompt.get((prompt_hash, sample), ()), key=lambda row: int(row["occurrence"]))

    def __len__(self) -> int:
        return len(self._rows)
