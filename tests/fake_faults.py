"""Lies of the FAKE engine that need no more than a hook or a word in it; FAKE_ENGINE chooses one.

usage_high, usage_low (usage says 4 tokens more, or fewer, than were made), no_usage, reads_less (a prompt is cut to its
first 32 tokens, and usage says so), says_less (half of an answer's text and token ids is missing), preempts,
cache_hits, cached_usage (usage says tokens from the cache, the counter none), caches (a prompt that was asked before
needs no prefill, and nothing counts that), dies_midway (the process ends in the middle of a stream), hides_first
(nothing is sent of a stream's first tokens until its fourth), holds_back (a stream is sent long after it was made,
as slowly as it was), slow_clock (a request's own account says ten times the time). After FAKE_ENGINE_AFTER requests
every timed one is begun and never ended: dribbles sends a byte now and then behind the header, stalls nothing more.
gemma_thoughts, mistral_thoughts, harmony_thoughts and bare_thoughts leave wrong thoughts in the body, as without the
right reasoning parser; unthinking has none at all.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from typing import Any, BinaryIO

LIE = os.environ.get("FAKE_ENGINE", "honest")

OFF_TOKENS = 4
FIRST_SEEN = 4
"""The first token that `hides_first` shows, as of Gemma 4: `<|channel>`, `thought` and a line's end stand before it."""
PREFILL_S = 0.4
"""Seconds that `caches` takes for a prompt that it doesn't know: no neighbour keeps an answer waiting for a third."""

HELD_S = 1.5  # seconds that `holds_back` waits: half as long again as what may be a busy front end's
DRIBBLE_S = 0.1
"""Seconds between two bytes of `dribbles`: less than any quiet time, and 64 bytes take longer than that of a test."""

LEFT = {
    "gemma_thoughts": "<|channel>thought\n{}\n<channel|>{}",
    "mistral_thoughts": "[THINK]{}[/THINK]{}",
    "harmony_thoughts": "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>{}",
    "bare_thoughts": "thought\n{}\n{}",
    "unthinking": "{1}",
}
"""Bodies with thoughts in them, by lie; the marks of `bare_thoughts` were stripped as special tokens."""

STANDING_STILL = ("dribbles", "stalls")

known: set[str] = set()


def told(tokens: int) -> int:
    return max(1, tokens + {"usage_high": OFF_TOKENS, "usage_low": -OFF_TOKENS}.get(LIE, 0))


def left_in(reasoning: str | None, content: str | None) -> tuple[str | None, str | None]:
    """Reasoning and content of an answer as they are sent."""
    if LIE not in LEFT:
        return reasoning, content
    return None, LEFT[LIE].format("정답: (A). The answer is (A).\nANSWER: A", content or "")


def said(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer, or an event of a stream, as it is sent."""
    return {name: value for name, value in answer.items() if (LIE, name) != ("no_usage", "usage")}


def chunk_ends(size: int, tokens: int, *, lumps: bool) -> list[int]:
    """Tokens that are sent with and before each chunk of a stream: the prefill's one, then `size` of each step."""
    if lumps:
        return [size, tokens]
    first = FIRST_SEEN if LIE == "hides_first" else 1
    return [*range(min(first, tokens), tokens, size), tokens]


def hold_back() -> float:
    """Let what is made wait for so long that no busy machine explains it; how long that was."""
    began = time.monotonic()
    if LIE == "holds_back":
        time.sleep(HELD_S)
    return time.monotonic() - began


def prefill(prompt: str) -> None:
    """Take the time to read a prompt that isn't known."""
    if LIE == "caches" and prompt not in known:
        known.add(prompt)
        time.sleep(PREFILL_S)


def accounted(usage: dict[str, int]) -> dict[str, Any]:
    """The usage of a whole answer, as it is sent last: vLLM names cached tokens where there are some."""
    return usage | ({"prompt_tokens_details": {"cached_tokens": 16}} if LIE == "cached_usage" else {})


def maybe_die(sent: int, tokens: int) -> None:
    if LIE == "dies_midway" and sent >= tokens // 2:
        print("RuntimeError: the fake engine dies on purpose in the middle of an answer", flush=True)
        os._exit(0)


def stand_still(answer: BinaryIO, connection: socket.socket) -> None:
    """What is sent of an answer that never ends: blanks, one by one, or nothing, until the client hangs up."""
    with suppress(ConnectionError):
        if LIE == "dribbles":
            while True:
                answer.write(b" ")
                answer.flush()
                time.sleep(DRIBBLE_S)
        connection.recv(1)
