"""The most tokens per second of any window inside a run, from the moments at which its chunks came."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple


class Flow(NamedTuple):
    """One stream behind its first chunk: moments in s on any one clock, and tokens made by then, from 0."""

    moments_s: Sequence[float]
    tokens: Sequence[float]

    def made(self, at_s: float) -> float:
        """Tokens until a moment; those of a chunk were made evenly since the chunk before."""
        after = bisect_right(self.moments_s, at_s)
        if after == 0 or after == len(self.moments_s):
            return self.tokens[-1] if after else 0.0
        begin_s, end_s = self.moments_s[after - 1 : after + 1]
        begin, end = self.tokens[after - 1 : after + 1]
        return begin + (end - begin) * (at_s - begin_s) / (end_s - begin_s)


def flow(sent_s: float, counts: Sequence[tuple[float, int]]) -> Flow:
    """A stream's flow, from when it was sent and its chunks' moments since then and running counts of tokens."""
    return Flow([sent_s + at_s for at_s, _ in counts], [float(tokens - counts[0][1]) for _, tokens in counts])


def peak_tok_s(flows: Sequence[Flow], window_s: float) -> float | None:
    """Most tokens per second, of all streams together, in any window of `window_s` seconds; None: they were shorter.

    Counts rise in straight lines between chunks, so the fullest window begins or ends where a line does. Tokens that
    came with a first chunk are left out: nobody knows since when they were made.
    """
    edges = {moment for each in flows for moment in each.moments_s}
    begin_s, end_s = min(edges, default=0.0), max(edges, default=0.0)
    last_s = end_s - window_s
    if last_s < begin_s:
        return None
    starts = {start for edge in edges for start in (edge, edge - window_s) if begin_s <= start <= last_s}
    return max(_made(flows, start + window_s) - _made(flows, start) for start in starts) / window_s


def _made(flows: Sequence[Flow], at_s: float) -> float:
    return sum(each.made(at_s) for each in flows)
