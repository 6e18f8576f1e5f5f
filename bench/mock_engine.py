"""A FAKE engine that knows what it did: answers after stated times, and keeps the truth of each request.

    python bench/mock_engine.py LATENCY_MS TTFT_MS TOKEN_MS

prints its address and serves until its stdin ends. One epoll loop: 256 streams of 50 chunks a second take it a third of
a core, so a client shows its own limits, not this server's. An answer comes LATENCY_MS after its request's last byte;
of a streamed one the first token after TTFT_MS, and one more each TOKEN_MS. `GET /truth` lists of each chat request
when its last byte came, when its first and last token were sent (this machine's monotonic clock), and its tokens.
`GET /book` is a text to cut prompts from.
"""

from __future__ import annotations

import heapq
import json
import re
import select
import socket
import sys
from time import monotonic
from typing import Any

MAX_TOKENS = re.compile(rb'"max_(?:completion_)?tokens": ?(\d+)')
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
STREAM = re.compile(rb'"stream": ?true')
PROMPT_TOKENS = 64


def head(kind: str, rest: str) -> bytes:
    """Of an answer that is sent."""
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{rest}\r\n\r\n".encode()


def page(kind: str, text: str) -> bytes:
    """A whole answer."""
    return head(kind, f"content-length: {len(text.encode())}") + text.encode()


def usage(tokens: int) -> dict[str, int]:
    """As vLLM writes it."""
    return {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + tokens, "completion_tokens": tokens}


def chunk(event: Any) -> bytes:
    """An event of a stream in its transfer coding."""
    data = f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def chat_event(text: str, tokens: int, finish_reason: str | None) -> bytes:
    """One token of a stream, with the running usage."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
    event = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return chunk({**event, "usage": usage(tokens)})


class Plan:
    """Answers of one length, encoded once."""

    def __init__(self, tokens: int) -> None:
        message = {"role": "assistant", "content": " word" * tokens}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        self.whole = page("application/json", json.dumps({**answer, "usage": usage(tokens)}))
        pieces = [chat_event(" word", index + 1, None) for index in range(tokens - 1)]
        pieces.append(chat_event(" word", tokens, "length"))
        ending = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
        pieces[0] = head("text/event-stream", "transfer-encoding: chunked") + pieces[0]
        pieces[-1] += chunk({**ending, "usage": usage(tokens)}) + chunk("[DONE]") + b"0\r\n\r\n"
        self.pieces = pieces


class Mock:
    """The server."""

    def __init__(self, latency_s: float, ttft_s: float, token_s: float) -> None:
        self.latency_s, self.ttft_s, self.token_s = latency_s, ttft_s, token_s
        self.sockets: dict[int, socket.socket] = {}
        self.buffers: dict[int, bytes] = {}
        self.due: list[tuple[float, int, int, int]] = []  # moment, request, socket, piece; -1: the whole answer
        self.truth: list[list[float]] = []  # arrived, first token sent, last sent, tokens
        self.plans: dict[int, Plan] = {}
        self.tokens = self.finished = 0
        self.epoll = select.epoll()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setblocking(False)

    def serve(self) -> None:
        """Until stdin ends."""
        print(f"http://127.0.0.1:{self.listener.getsockname()[1]}", flush=True)
        ends, door = sys.stdin.fileno(), self.listener.fileno()
        self.epoll.register(ends, select.EPOLLIN)
        self.epoll.register(door, select.EPOLLIN)
        while True:
            wait_s = max(0.0, self.due[0][0] - monotonic()) if self.due else -1
            for number, _ in self.epoll.poll(wait_s):
                if number == ends:
                    return
                if number == door:
                    self.accept()
                else:
                    self.read(number)
            while self.due and self.due[0][0] <= monotonic():
                self.send_due(*heapq.heappop(self.due))

    def accept(self) -> None:
        """Take all who wait at the door."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except BlockingIOError:
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets[connection.fileno()] = connection
            self.buffers[connection.fileno()] = b""
            self.epoll.register(connection.fileno(), select.EPOLLIN)

    def read(self, number: int) -> None:
        """What came on a connection; a request that is whole begins to be answered."""
        try:
            data = self.sockets[number].recv(1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            self.drop(number)
            return
        data = self.buffers[number] + data
        end = data.find(b"\r\n\r\n")
        length = LENGTH.search(data, 0, end) if end >= 0 else None
        whole = end >= 0 and len(data) >= end + 4 + (int(length[1]) if length else 0)
        self.buffers[number] = b"" if whole else data
        if whole:
            self.begin(number, data[:end], data[end + 4 :])

    def begin(self, number: int, request: bytes, body: bytes) -> None:
        """Answer a page at once; let a chat request fall due."""
        if not request.startswith(b"POST"):
            self.send(number, self.page(request.split(b" ", 2)[1]))
            return
        arrived_s = monotonic()
        found = MAX_TOKENS.search(body)
        tokens = int(found[1]) if found else 16
        if tokens not in self.plans:
            self.plans[tokens] = Plan(tokens)
        self.truth.append([arrived_s, 0.0, 0.0, tokens])
        streams = STREAM.search(body) is not None
        moment_s = arrived_s + (self.ttft_s if streams else self.latency_s)
        heapq.heappush(self.due, (moment_s, len(self.truth) - 1, number, 0 if streams else -1))

    def send_due(self, moment_s: float, place: int, number: int, piece: int) -> None:
        """Send what fell due, and put what follows behind it: each token by the plan, however late this one is."""
        if number not in self.sockets:
            return
        truth = self.truth[place]
        plan = self.plans[int(truth[3])]
        now_s = monotonic()
        self.send(number, plan.whole if piece < 0 else plan.pieces[piece])
        if piece <= 0:
            truth[1] = now_s
        if piece < 0 or piece == len(plan.pieces) - 1:
            truth[2] = now_s
            self.tokens += int(truth[3])
            self.finished += 1
        else:
            heapq.heappush(self.due, (moment_s + self.token_s, place, number, piece + 1))

    def send(self, number: int, data: bytes) -> None:
        """Into the socket's buffer, which is larger than all answers together."""
        try:
            self.sockets[number].sendall(data)
        except (ConnectionError, BlockingIOError):
            self.drop(number)

    def drop(self, number: int) -> None:
        """A client that has gone."""
        self.epoll.unregister(number)
        self.sockets.pop(number).close()
        self.buffers.pop(number, None)

    def page(self, path: bytes) -> bytes:
        """A GET's answer."""
        if path == b"/truth":
            return page("application/json", json.dumps(self.truth))
        if path == b"/v1/models":
            return page("application/json", json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}))
        if path == b"/book":
            return page("text/plain", "the fox saw the red house and went on to the river " * 4000)
        counters = {"generation_tokens": self.tokens, "request_success": self.finished, "prefix_cache_hits": 0}
        return page("text/plain", "".join(f"vllm:{name}_total {value}\n" for name, value in counters.items()))


if __name__ == "__main__":
    Mock(*(float(each) / 1000 for each in sys.argv[1:4])).serve()
