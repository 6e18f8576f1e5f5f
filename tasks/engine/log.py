"""What an engine's log says: why it died, and what its start says of its memory.

Wordings of vLLM 0.11 to 0.32, each from the file below v1/ that logs it:

- end: each process prints its own traceback, and the API server, which ends last, only that there was one: "Engine core
  initialization failed. See root cause above." (engine/utils.py, engine/exceptions.py, executor/multiproc_executor.py).
- weights: "Model loading took 31.53 GiB memory and ..." (worker/gpu_model_runner.py; 0.25 without "memory"). Of one
  card, the draft's included. Not logged on the CPU.
- KV cache: "Available KV cache memory: 91.06 GiB" (worker/gpu_worker.py). Where its size was an argument: "reserved
  20.0 GiB memory for KV Cache". On the CPU: "Explicitly set (1.0/18.34) GiB for KV cache" or "Auto set (...)"
  (worker/cpu_worker.py). Of one card, or of one worker's memory.
- KV tokens: "GPU KV cache size: 179,881 tokens" (core/kv_cache_utils.py), a line per data-parallel engine.
- CUDA graphs: "Graph capturing finished in 19 secs, took 0.84 GiB" (worker/gpu_model_runner.py). Of one card.

GiB are rounded to hundredths there, so less than 5 MiB reads 0.0, which means unknown and not nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

MOST_CHARS = 300  # of a cause: it stands in one line of a table

_EXCEPTION = re.compile(r"(?:^|\s)([\w.]+(?:Error|Exception|Interrupt|Refused)(?::\s.*)?)$")
"""As the last line of a traceback has it, and no `raise ValueError(` of the source above it."""

_PREFIX = re.compile(
    r"^(?:\(?[A-Za-z0-9_ .:=]*pid=\d+\)?\s*)?(?:(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[^]]*\]\s*)?"
)

_PASSING = re.compile(r"(?:DEBUG|INFO|WARNING) \d\d-\d\d \d\d:\d\d:\d\d ")  # a line about something that it lived with

_REFUSED = re.compile(r"validation errors? for \w+$")
_INPUT = re.compile(r"\s*\[type=.*$")  # what pydantic adds about a value, such as all arguments of the engine


def cause(lines: Sequence[str]) -> str | None:
    """Why the engine died, by the last line that says so, of its log's last thousand, oldest first; None: none does."""
    raised = {
        place: match[1]
        for place, line in enumerate(lines)
        if not _PASSING.search(line) and (match := _EXCEPTION.search(line))
    }
    for place, said in reversed(raised.items()):
        if "root cause" not in said:  # which an exception has that only says that the reason stands elsewhere
            return (f"{said}: {_refused(lines[place + 1 :])}" if _REFUSED.search(said) else said)[:MOST_CHARS]
    # of a process that got to say nothing, e.g. for want of memory
    killed = next((without_prefix(line) for line in reversed(lines) if "died unexpectedly" in line), None)
    said = killed or next(reversed(raised.values()), None)
    return None if said is None else said[:MOST_CHARS]


def without_prefix(line: str) -> str:
    """A line of vLLM's log without the process and the moment that it begins with."""
    return _PREFIX.sub("", line)


def _refused(behind: Sequence[str]) -> str:
    """What pydantic refused: the lines behind its exception, as one."""
    told = []
    for line in behind:
        text = without_prefix(line).strip()
        if text.startswith("For further information visit"):
            break
        told.append(_INPUT.sub("", text))
    return " ".join(told)


GIB = 1024**3

WEIGHTS, KV_CACHE, KV_TOKENS, GRAPHS = "weights", "KV cache memory", "KV cache tokens", "CUDA graphs"
"""What is read off the log, as findings call it."""

_LINES = {
    WEIGHTS: (re.compile(r"Model loading took (\d+(?:\.\d+)?) GiB(?: memory)? and \d"),),
    KV_CACHE: (
        re.compile(r"Available KV cache memory: (\d+(?:\.\d+)?) GiB"),
        re.compile(r"reserved (\d+(?:\.\d+)?) GiB memory for KV Cache"),
        re.compile(r"(?:Explicitly|Auto) set \((\d+(?:\.\d+)?)/\d+(?:\.\d+)?\) GiB for KV cache"),
    ),
    KV_TOKENS: (re.compile(r"KV cache size: (\d[\d,]*) tokens"),),
    GRAPHS: (re.compile(r"Graph capturing finished in \d+ secs, took (-?\d+(?:\.\d+)?) GiB"),),
}


class StartupMemory(NamedTuple):
    """Memory by the engine's log; bytes are of one card. None: no line says it, or it was rounded to nothing."""

    weights_bytes: int | None
    kv_cache_bytes: int | None
    kv_tokens: int | None
    graph_bytes: int | None
    unsaid: tuple[str, ...]  # what no line says, by the names above


def startup_memory(log: str) -> StartupMemory:
    """The figures in an engine's log, from one start.

    Of workers that differ, the largest counts for weights and graphs, the smallest for the cache, which decides for
    all. Tokens of data-parallel engines add up.
    """
    said = {
        name: [float(found.replace(",", "")) for pattern in patterns for found in pattern.findall(log)]
        for name, patterns in _LINES.items()
    }
    tokens = said[KV_TOKENS]
    return StartupMemory(
        weights_bytes=_bytes(max(said[WEIGHTS], default=None)),
        kv_cache_bytes=_bytes(min(said[KV_CACHE], default=None)),
        kv_tokens=int(sum(tokens)) if tokens else None,
        graph_bytes=_bytes(max(said[GRAPHS], default=None)),
        unsaid=tuple(name for name, found in said.items() if not found),
    )


def _bytes(gib: float | None) -> int | None:
    return None if gib is None or gib <= 0 else round(gib * GIB)
