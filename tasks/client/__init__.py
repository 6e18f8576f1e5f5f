"""The client of an engine, its door: requests, answers, and what goes wrong with them."""

from __future__ import annotations

from tasks.client.client import CLIENT_VERSION, SLOWEST_TOK_S, Client, path_of, request_body, streamed
from tasks.client.replies import Heard, Ready, Reply, RequestFailed, StreamReply, Unanswered, reply_of, stream_reply_of

__all__ = [
    "CLIENT_VERSION", "SLOWEST_TOK_S", "Client", "Heard", "Ready", "Reply", "RequestFailed", "StreamReply",
    "Unanswered", "path_of", "reply_of", "request_body", "stream_reply_of", "streamed",
]  # fmt: skip
