"""Requests of a timed step: what is asked, with what its row says of it, and the answer as columns of that row."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, NamedTuple

from tasks.client import Ready, Reply, StreamReply
from tasks.context import StepContext
from tasks.guards.text import text_columns
from tasks.prompts import prompt_seed
from tasks.timing.timed import Timed
from warehouse.ledger.formulas.load_windows import counted_gaps

Row = dict[str, Any]


class Asked(NamedTuple):
    """One request, encoded, and the columns of its row that are known before it is sent."""

    ready: Ready
    columns: Row


def ready_of(asked: Sequence[Asked]) -> list[Ready]:
    """The requests without their rows."""
    return [each.ready for each in asked]


class OwnPrompts(NamedTuple):
    """Prompts of a length, none of which is ever sent twice, each to be answered with the same number of tokens."""

    kind: str
    """What they are made of."""
    context_tokens: int
    output_tokens: int

    async def ask(
        self,
        ctx: StepContext,
        names: Sequence[str],
        number: int,
        *,
        cut: int | None = None,
        fixed: bool = True,
        streams: bool = False,
        **more: Any,
    ) -> list[Asked]:
        """Requests that are counted by the engine and encoded, before any clock starts.

        Args:
            ctx: has prose and client.
            names: what their seed is made of; condition and window last, which name the requests.
            number: of requests.
            cut: tokens of an answer that is wanted no further; None: all.
            fixed: whether answers have exactly that many.
            streams: whether they are streamed.
            more: what else is asked of `Client.request`.
        """
        asked = []
        for index in range(number):
            seed = prompt_seed(*names, index)
            prompt = await ctx.prompt(self.kind, seed, self.context_tokens, self.output_tokens)
            body = ctx.client.request(prompt, cut or self.output_tokens, fixed=fixed, **more)
            named = {"request_id": "/".join([*names[-2:], str(index)]), "prompt_chars": len(prompt.text)}
            asked.append(Asked(ctx.client.ready(body, streams=streams), named))
        return asked


def request_rows(load: Timed, asked: Sequence[Asked], same: Row) -> list[Row]:
    """The answers of a load as rows of requests; `same` are columns that all of them share."""
    answered, rows = load.answered, []
    for place, (span, reply) in zip(answered.places, answered.each, strict=True):
        row = same | _answer(reply) | asked[place].columns | {"sent_s": span.sent_s - load.begun_s}
        rows.append(row | ({"due_s": load.moments_s[place]} if load.moments_s else {}))
    return rows


def _answer(reply: Reply | StreamReply) -> Row:
    """One answer as columns; a streamed one has its times, too."""
    text = reply.text if isinstance(reply, StreamReply) else reply.reasoning + reply.body
    row: Row = {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "wall_s": reply.wall_s,
        "finish_reason": reply.finish_reason,
        "chars": len(text),
        "text": text,
        **{f"engine_{name}": value for name, value in reply.engine._asdict().items()},
    }
    if isinstance(reply, Reply):
        ids = reply.token_ids
        told = {"mean_logprob": reply.mean_logprob, "token_id_count": None if ids is None else len(ids)}
        return row | text_columns(text, ids) | told
    gaps = reply.gaps
    return row | text_columns(text, None) | {
        "token_id_count": reply.token_id_count,
        "ttft_ms": _ms(reply.first_token_s),
        "tpot_ms": _ms(reply.tpot_s),
        "chunk_ms": _ms(fmean(gap_s for gap_s, _ in gaps) if gaps else None),
        "itl_histogram": counted_gaps(gaps),
        "chunks": reply.chunks,
        "first_chunk_tokens": reply.first_chunk_tokens,
        "largest_chunk_tokens": reply.largest_chunk_tokens,
    }  # fmt: skip


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds
