"""Programs of a step's answers: each is run once, however many answers have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from configs.workloads.workload import Workload
from tasks.sandbox.check import Checked, checked, why_no_sandbox

NOTHING: Mapping[str, Any] = {"program": None, "program_reason": None}
"""Columns of an answer of which no program is asked."""


class Programs:
    """Runs programs, and remembers them: greedy answers to one prompt are mostly the same."""

    def __init__(self, *, unfenced: bool) -> None:
        """Nothing is run yet.

        Args:
            unfenced: run them with limits only, where this machine can't fence them in.
        """
        self._unfenced = unfenced
        self._missing: str | None = None
        self._tried = False
        self._known: dict[tuple[str, str], Checked] = {}

    def columns(self, workload: Workload, answer: str) -> Mapping[str, Any]:
        """What became of an answer's program, as columns of `prompt_requests`. It takes seconds: not on the loop.

        Args:
            workload: what was asked.
            answer: without its thinking.
        """
        if workload.check is None:
            return NOTHING
        if not self._tried:
            self._missing, self._tried = why_no_sandbox(), True
        if self._missing is not None and not self._unfenced:
            return {"program": "not_run", "program_reason": self._missing}
        key = (workload.name, answer)
        if key not in self._known:
            self._known[key] = checked(answer, workload.check, fenced=self._missing is None)
        found = self._known[key]
        return {"program": found.outcome, "program_reason": found.reason}
