"""The client of an engine, its door: requests, answers, and what goes wrong with them."""

from __future__ import annotations

from tasks.client.bodies import request_body, streamed
from tasks.client.client import CLIENT_VERSION, SLOWEST_TOK_S, Client
from tasks.client.engine_truth import EngineTruth
from tasks.client.failures import RequestFailed, Unanswered
from tasks.client.heard import Heard, Ready
from tasks.client.logprobs import mean_logprob, top2_gaps
from tasks.client.replies import Reply, StreamReply, reply_of, stream_reply_of

__all__ = [
    "CLIENT_VERSION",
    "SLOWEST_TOK_S",
    "Client",
    "EngineTruth",
    "Heard",
    "Ready",
    "Reply",
    "RequestFailed",
    "StreamReply",
    "Unanswered",
    "mean_logprob",
    "reply_of",
    "request_body",
    "stream_reply_of",
    "streamed",
    "top2_gaps",
]
