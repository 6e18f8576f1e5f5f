"""How many answers of an evaluation are asked for at a time, and how far it is.

As many as the engine's KV cache holds at full length: vLLM throws out what does not fit and computes it again. How far
it is goes by tokens: a few long answers can take as long as all the short ones before them.
"""

from __future__ import annotations

from collections import deque

from configs.cell import Cell
from configs.steps.eval import MOST_AT_ONCE, EvalStep
from tasks.context import Progress
from tasks.evals.exchange import Count
from tasks.meters import samples
from warehouse.ledger.clock import duration

WINDOW_S = 120.0  # the rate is that of the last two minutes: the batch is smaller at the end, and slower as a whole


class Pace:
    """Tokens per second over the last `WINDOW_S`, from readings of a counter. Times are the caller's, in seconds."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float]] = deque()

    def tok_s(self, now_s: float, tokens: float) -> float | None:
        """The rate with this reading as the last one; None: there is only one, or nothing was generated."""
        self._readings.append((now_s, tokens))
        while len(self._readings) > 2 and self._readings[1][0] <= now_s - WINDOW_S:
            self._readings.popleft()
        first_s, first_tokens = self._readings[0]
        return (tokens - first_tokens) / (now_s - first_s) if now_s > first_s and tokens > first_tokens else None


def generated(count: Count) -> float:
    """Tokens generated since the log began: by the engine's counter, or those of finished answers if it has none."""
    return max(count.generated_tokens or 0.0, float(count.fresh_tokens))


def mean_tokens(count: Count, expected_tokens: float, max_tokens: int) -> float:
    """Tokens of an answer; `expected_tokens` counts as one finished answer.

    The mean of the finished ones is too small while the long ones are being written. Tokens generated / answers
    finished is the estimate of an exponential mean from censored data (Epstein & Sobel 1953).
    """
    mean = (expected_tokens + count.completion_tokens + _unfinished(count)) / (1 + count.answered)
    return min(mean, float(max_tokens))


def tokens_left(count: Count, answers: int, expected_tokens: float, max_tokens: int) -> float:
    """Tokens still to be generated; an answer in flight has as much left as a new one, within `max_tokens`."""
    open_answers = max(0, answers - count.answered)
    in_flight = min(count.in_flight, open_answers)
    mean = mean_tokens(count, expected_tokens, max_tokens)
    room = max_tokens - _unfinished(count) / in_flight if in_flight else 0.0
    return (open_answers - in_flight) * mean + in_flight * max(0.0, min(mean, room))


def progress(count: Count, answers: int, expected_tokens: float, max_tokens: int, tok_s: float | None) -> Progress:
    """Share done, a line for people, and the rate; `answers` are asked for in all, items x samples."""
    done = count.completion_tokens + _unfinished(count)
    left = tokens_left(count, answers, expected_tokens, max_tokens)
    percent = 100 * done / (done + left) if done + left > 0 else 0.0
    parts = [f"{count.answered} of {answers} answered"]
    parts += [f"{count.truncated} cut off"] if count.truncated else []
    parts += [f"{count.blank} blank"] if count.blank else []
    parts += [f"{count.in_flight} in flight"] if count.in_flight else []
    parts += [f"{tok_s:.0f} tok/s, {duration(left / tok_s)} left"] if tok_s and left else []
    return Progress(percent, ", ".join(parts), tok_s)


def _unfinished(count: Count) -> float:
    return max(0.0, generated(count) - count.fresh_tokens) if count.in_flight else 0.0


UNKNOWN_AT_ONCE = 8  # requests at a time where the engine says nothing about its cache and the cell sets no limit
CACHE_INFO = "vllm:cache_config_info"  # has the cache's configuration as labels, a line per data-parallel engine


def at_once(spec: EvalStep, cell: Cell, metrics_text: str) -> tuple[int, str]:
    """Requests in flight, and why so many: the step's own number wins, else what the KV cache and the cell allow."""
    if spec.concurrency is not None:
        return spec.concurrency, f"{spec.concurrency} at a time, as the step says"
    most, tokens = cell.serving.max_num_seqs, kv_tokens(metrics_text)
    limit = MOST_AT_ONCE if most is None else min(most, MOST_AT_ONCE)
    if tokens is None:
        number = UNKNOWN_AT_ONCE if most is None else limit
        return number, f"{number} at a time: the engine does not say how large its KV cache is"
    longest = max(size for _, size in spec.longest_requests(cell))
    carried = max(1, tokens // longest)
    said = f"a KV cache of {tokens} tokens carries {carried} answers of {longest} tokens with their prompts"
    if carried > limit:
        why = "which the cell's max_num_seqs allows" if limit == most else "the most that any step asks"
        return limit, f"{limit} at a time, {why}; {said}"
    return carried, f"{carried} at a time: {said}"


def kv_tokens(metrics_text: str) -> int | None:
    """Tokens that the KV cache holds, over all data-parallel engines; None if the engine does not say.

    `kv_cache_size_tokens` is each engine's own, right for several kinds of layers, too. Older engines have only the
    blocks, which vLLM has already summed over its engines.
    """
    engines = [labels for name, labels, _ in samples(metrics_text) if name == CACHE_INFO]
    sizes = [_number(labels.get("kv_cache_size_tokens")) for labels in engines]
    if engines and None not in sizes:
        return sum(size for size in sizes if size is not None)
    for labels in engines:
        blocks, block_size = _number(labels.get("num_gpu_blocks")), _number(labels.get("block_size"))
        if blocks is not None and block_size is not None:
            return blocks * block_size
    return None


def _number(label: str | None) -> int | None:
    return int(label) if label and label.isdigit() else None  # unset: the text "None"
