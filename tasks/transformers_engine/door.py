"""The HTTP door: the paths of vLLM's server that our client uses, by the standard library alone."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

from tasks.transformers_engine.arguments import Arguments
from tasks.transformers_engine.asked import Asked, BadRequest, asked
from tasks.transformers_engine.turns import Counters, Done, HungUp, Job, Logprob, Turns
from tasks.transformers_engine.writing import CHANNELS, Channel, Text, Writer


class Answer:
    """The documents of one request's answer, whole or in chunks."""

    def __init__(self, model: str, prompt_tokens: int, running_usage: bool) -> None:
        self._head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self._prompt_tokens, self._running_usage = prompt_tokens, running_usage

    def whole(self, done: Done, token_text: Callable[[int], str], *, token_ids: bool) -> dict[str, Any]:
        """The body of an answer that isn't streamed."""
        message = {"role": "assistant", "content": done.text.content or None, "reasoning": done.text.reasoning or None}
        choice: dict[str, Any] = {
            "index": 0,
            "message": message,
            "logprobs": None if done.logprobs is None else logprobs(done.logprobs, token_text),
            "finish_reason": done.finish_reason,
            "stop_reason": done.stopped_by,
        }
        if token_ids:
            choice["token_ids"] = done.token_ids
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": self._usage(len(done.token_ids)),
            "metrics": metrics(done),
        }

    def chunk(self, delta: dict[str, Any], tokens: int, finish_reason: str | None = None) -> dict[str, Any]:
        """An event of a stream, with what it adds to the text, and the tokens so far."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        usage = {"usage": self._usage(tokens)} if self._running_usage else {}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice], **usage}

    def account(self, done: Done) -> dict[str, Any]:
        """The event behind the last one: usage, and the engine's own account."""
        account = {"usage": self._usage(len(done.token_ids)), "metrics": metrics(done)}
        return {**self._head, "object": "chat.completion.chunk", "choices": [], **account}

    def _usage(self, tokens: int) -> dict[str, Any]:
        """Nothing of a prompt is ever cached: each request computes all of it."""
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": self._prompt_tokens + tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }


def metrics(done: Done) -> dict[str, Any]:
    """The engine's own account of a request."""
    drafts = {} if done.drafts is None else {"speculative_decoding": done.drafts.as_metrics()}
    return done.clock.as_metrics(len(done.token_ids)) | drafts


def logprobs(tokens: Sequence[Logprob], token_text: Callable[[int], str]) -> dict[str, Any]:
    """Probabilities of the written tokens."""
    content = [
        {
            "token": token_text(each.token_id),
            "logprob": each.logprob,
            "top_logprobs": [{"token": token_text(token), "logprob": value} for token, value in each.best],
        }
        for each in tokens
    ]
    return {"content": content}


def _written(text: Text) -> dict[str, Any]:
    return {name: said for name, said in text._asdict().items() if said}


if TYPE_CHECKING:  # they need torch
    from tasks.transformers_engine.generation import Generator
    from tasks.transformers_engine.loading import Memory


class Server(ThreadingHTTPServer):
    """Generator, counters and queue behind a thread per connection; those only read, write and wait."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(
        self, arguments: Arguments, generator: Generator, memory: Memory, counters: Counters, turns: Turns, version: str
    ) -> None:
        """Listen; raises OSError where somebody else has the port."""
        self.arguments, self.generator, self.version = arguments, generator, version
        self.counters, self.turns, self.memory = counters, turns, memory
        super().__init__((arguments.host, arguments.port), _Handler)

    def page(self) -> str:
        """The metrics page."""
        waiting = {"vllm:num_requests_waiting": float(self.turns.waiting)}
        return self.counters.page(waiting | self.memory.gauges())

    def job(self, wanted: Asked, connection: socket.socket) -> Job:
        """A request, its prompt rendered and found to fit. Raises BadRequest: it doesn't fit into the context."""
        prompt = self.generator.tokens_of(wanted)
        room = self.arguments.max_model_len - len(prompt)
        if room < (wanted.max_tokens or 1):
            raise BadRequest(
                f"max_tokens: {len(prompt)} tokens of prompt and {wanted.max_tokens} of answer are more than the "
                f"{self.arguments.max_model_len} of --max-model-len"
            )
        parser = self.arguments.reasoning_parser
        channel = None if parser is None else Channel.of(CHANNELS[parser], self.generator.id_of, prompt)
        writer = Writer(self.generator.decode, channel, wanted.stop)
        return Job(wanted, prompt, wanted.max_tokens or room, writer, lambda: has_hung_up(connection))


def has_hung_up(connection: socket.socket) -> bool:
    """Whether the other side of a connection has closed it."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm: ClassVar[bool] = True
    wbufsize = -1  # a head and its body leave together
    server: Server

    def log_message(self, format: str, *args: Any) -> None:
        """The log is for what the engine does, not for who asked."""

    def do_GET(self) -> None:
        server, name = self.server, self.server.arguments.served_model_name
        if self.path == "/health":
            self._reply(200, "")
        elif self.path == "/version":
            self._json(200, {"version": server.version})
        elif self.path == "/metrics":
            self._reply(200, server.page())
        elif self.path == "/v1/models":
            model = {"id": name, "object": "model", "max_model_len": server.arguments.max_model_len}
            self._json(200, {"object": "list", "data": [model]})
        else:
            self._error(404, f"no {self.path} here")

    def do_POST(self) -> None:
        paths = {"/v1/chat/completions": self._chat, "/tokenize": self._tokenize}
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path not in paths:
            self._error(404, f"no {self.path} here")
            return
        try:
            try:
                body = json.loads(data)
            except ValueError as error:
                raise BadRequest(f"the body is no JSON: {error}") from error
            if not isinstance(body, dict):
                raise BadRequest("the body is no JSON object")
            paths[self.path](asked(body))
        except BadRequest as error:
            self._error(400, str(error))
        except (HungUp, ConnectionError):
            self.close_connection = True

    def _tokenize(self, wanted: Asked) -> None:
        tokens = self.server.generator.tokens_of(wanted)
        most = self.server.arguments.max_model_len
        self._json(200, {"count": len(tokens), "tokens": tokens, "max_model_len": most})

    def _chat(self, wanted: Asked) -> None:
        server = self.server
        job = server.job(wanted, self.connection)
        answer = Answer(server.arguments.served_model_name, len(job.prompt), wanted.running_usage)
        server.turns.add(job)
        if wanted.streams:
            self._stream(job, answer)
            return
        try:
            done = next(event for event in job.events() if isinstance(event, Done))
        except HungUp:
            raise
        except Exception as error:
            self._error(500, f"{type(error).__name__}: {error}")
            return
        self._json(200, answer.whole(done, server.generator.token_text, token_ids=wanted.token_ids))

    def _stream(self, job: Job, answer: Answer) -> None:
        """Chunks as they come. Once the head is out, an error is an event, too."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._event(answer.chunk({"role": "assistant", "content": ""}, 0))
        try:
            for event in job.events():
                if isinstance(event, Done):
                    self._event(answer.chunk(_written(event.rest), len(event.token_ids), event.finish_reason))
                    if job.asked.include_usage:
                        self._event(answer.account(event))
                else:
                    self._event(answer.chunk(_written(event.text), event.tokens))
        except (HungUp, ConnectionError):
            raise
        except Exception as error:
            self._event(_error(500, f"{type(error).__name__}: {error}"))
        self._piece(b"data: [DONE]\n\n")
        self._piece(b"")

    def _event(self, document: Mapping[str, Any]) -> None:
        self._piece(b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n")

    def _piece(self, data: bytes) -> None:
        """A chunk of the transfer coding (RFC 9112, 7.1); an empty one is the last."""
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _json(self, status: int, document: Mapping[str, Any]) -> None:
        self._reply(status, json.dumps(document, ensure_ascii=False), "application/json")

    def _error(self, status: int, text: str) -> None:
        self._json(status, _error(status, text))

    def _reply(self, status: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


def _error(status: int, text: str) -> dict[str, Any]:
    kind = "BadRequestError" if status == 400 else "InternalServerError"
    return {"error": {"message": text, "type": kind, "code": status}}
