"""Why an engine died, in its own words: the exception behind its end, found in its log.

vLLM starts its core, and the core its workers, as processes of their own. Each prints its traceback, and the API
server, which ends last, only that there was one: "RuntimeError: Engine core initialization failed. See root cause
above." Wordings of vLLM 0.32: v1/engine/utils.py, v1/engine/exceptions.py, v1/executor/multiproc_executor.py. What
pydantic refuses stands in the lines behind its exception.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_CHARS = 300
"""Of a cause: it stands in one line of a table."""

_EXCEPTION = re.compile(r"(?:^|\s)([\w.]+(?:Error|Exception|Interrupt|Refused)(?::\s.*)?)$")
"""As the last line of a traceback has it, and no `raise ValueError(` of the source above it."""

_POINTS = re.compile(r"root cause")
"""Of an exception that only says that the reason stands elsewhere."""

_KILLED = re.compile(r"died unexpectedly")
"""Of the line that tells of a process that got to say nothing, e.g. for want of memory."""

_PREFIX = re.compile(
    r"^(?:\(?[A-Za-z0-9_ .:=]*pid=\d+\)?\s*)?(?:(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[^]]*\]\s*)?"
)

_PASSING = re.compile(r"(?:DEBUG|INFO|WARNING) \d\d-\d\d \d\d:\d\d:\d\d ")
"""A line about something that it lived with."""

_REFUSED = re.compile(r"validation errors? for \w+$")
_DETAIL_END = "For further information visit"
_INPUT = re.compile(r"\s*\[type=.*$")
"""What pydantic adds about a value, such as all arguments of the engine."""


def cause(lines: Sequence[str]) -> str | None:
    """Why the engine died, by the last line of its log that says so; None: none does.

    Args:
        lines: of the log, oldest first; the last thousand will do.
    """
    raised = {place: match[1] for place, line in enumerate(lines) if (match := _raised(line))}
    for place, said in reversed(raised.items()):
        if not _POINTS.search(said):
            return (f"{said}: {_refused(lines[place + 1 :])}" if _REFUSED.search(said) else said)[:MOST_CHARS]
    killed = next((without_prefix(line) for line in reversed(lines) if _KILLED.search(line)), None)
    said = killed or next(reversed(raised.values()), None)
    return None if said is None else said[:MOST_CHARS]


def without_prefix(line: str) -> str:
    """A line of vLLM's log without the process and the moment that it begins with."""
    return _PREFIX.sub("", line)


def _raised(line: str) -> re.Match[str] | None:
    return None if _PASSING.search(line) else _EXCEPTION.search(line)


def _refused(behind: Sequence[str]) -> str:
    """What pydantic refused: the lines behind its exception, as one."""
    told = []
    for line in behind:
        text = without_prefix(line).strip()
        if text.startswith(_DETAIL_END):
            break
        told.append(_INPUT.sub("", text))
    return " ".join(told)
