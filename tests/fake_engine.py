"""A FAKE engine: a small OpenAI-compatible server that lies in a chosen way, to see whether the guards notice.

Started as `vllm serve` would be: `python fake_engine.py serve MODEL --port P ...`. FAKE_ENGINE chooses the lie: honest,
bursts, dead_draft, short, blank, loop, miscount, at_chance, dies, forgets_late (what stands behind 80 % of a prompt),
cut_off (the length limit ends the thinking), two_letters (another option in brackets after the announced one),
half_wrong (every other question), no_tokenize (as an engine without that endpoint), error (HTTP 500 to every chat
request), drafts_secretly (an AR engine that was told to draft all the same), renamed_counters (two counters under names
that nobody knows), insane (it answers what nobody asked, where questions are so easy that nobody misses them), noise
(every token is improbable to the engine itself), no_ar (it starts only to speculate), some_errors (HTTP 500 to every
20th timed request), cuts (every other stream, and every other natural answer that isn't streamed, ends half-way),
drafts_apart (requests say other drafts than the counters), counts_chunks (a stream's usage takes a chunk for a token;
an engine that drafts has all of its drafts accepted then, so that a chunk has K + 1 tokens), wrong_program (the program
that it was asked for prints something else), deaf (SIGTERM does not end it). After FAKE_ENGINE_AFTER chat requests,
dies_later dies and hangs_later never answers again, or once the file FAKE_ENGINE_HANG, if it is named one, exists. A
token is a word; with FAKE_ENGINE_DIGITS=1 each digit and each mark is one, too, the chat template adds some, and what
exceeds --max-model-len is refused. It counts every chat request in the file FAKE_ENGINE_COUNT, so that a test can ask
whether something was measured twice, and writes whole ones to the file FAKE_ENGINE_BODIES. FAKE_ENGINE_SLOTS, such as
"1 1.5 2", makes a request as slow as the slot that it finds free. While the file FAKE_ENGINE_HOLD exists it does not
get healthy. A token takes FAKE_ENGINE_TOKEN_S, and 2 ms once the file FAKE_ENGINE_HURRY exists. As vLLM does, it
looks for stop strings inside the thinking, too. It logs its memory as a vLLM on a card does, and FAKE_ENGINE_LOG after
it; reworded_log does so in words that nobody knows. Of what may end as a loop, loops says that it did; sane_but_blank
says nothing to any other question than the ten. Further lies: fake_faults.py.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

from tasks.family import words
from tasks.sanity_questions import CONTINUED, GENERAL
from tests import fake_faults

LIE = os.environ.get("FAKE_ENGINE", "honest")
HURRIED_TOKEN_S = 0.002
TOKEN_S = float(os.environ.get("FAKE_ENGINE_TOKEN_S", HURRIED_TOKEN_S))
AFTER = int(os.environ.get("FAKE_ENGINE_AFTER", "0"))
HANG = os.environ.get("FAKE_ENGINE_HANG")
CHUNK_TOKENS = 2
DIGITS = bool(os.environ.get("FAKE_ENGINE_DIGITS"))
TEMPLATE_TOKENS = 11
READ_TOKENS = 32
SPECULATES = "--speculative-config" in sys.argv or LIE == "drafts_secretly"
K = int((re.findall(r'"num_speculative_tokens": (\d+)', " ".join(sys.argv)) or [4])[0])

RATES = json.loads((re.findall(r'"synthetic_acceptance_rates": (\[[^]]*\])', " ".join(sys.argv)) or ["[1.0]"])[0])
"""Acceptance by position: as it is told, else of each draft its first token and no other."""

if SPECULATES and LIE == "counts_chunks":
    RATES, CHUNK_TOKENS = [1.0] * K, K + 1

PROGRAM = "Here it is:\n```python\nprint({}sum(map(int, input().split())))\n```\n"
"""What it answers to whoever asks for a Python program: the sum of the numbers in its input."""

SANE = {question.prompt: question.wanted for question in (*GENERAL, *CONTINUED)}
"""The sanity questions and their answers; it knows them as any working model does."""

STARTUP = """\
Model loading took 1.5 GiB memory and 0.300000 seconds
Available KV cache memory: 4.0 GiB
GPU KV cache size: 65,536 tokens, Maximum concurrency for 2,048 tokens per request: 32.00x
Graph capturing finished in 1 secs, took 0.25 GiB"""
"""What a vLLM on a card logs of its memory."""

REFUSAL = """\
(EngineCore pid=7) ERROR 11-24 22:52:22 [core.py:1510]     raise ValueError(
(EngineCore pid=7) ERROR 11-24 22:52:22 [core.py:1510] ValueError: the fake engine refuses these arguments
Traceback (most recent call last):
    raise RuntimeError(
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"""
"""How a vLLM whose core did not come up ends: the server's own exception, which is the last one, says only that."""

lock = threading.Lock()
counters = {"generation": 0, "finished": 0, "drafts": 0, "accepted": 0}
SLOTS = [float(each) for each in os.environ.get("FAKE_ENGINE_SLOTS", "").split()]
busy: set[int] = set()
in_flight = {"now": 0, "most": 0}
asked = {"chat": 0}


def answer_letter(prompt: str) -> str:
    """The right letter of a question of the family: looked up, as the model would."""
    color = re.search(r"what color is (\w+)", prompt)
    total = re.search(r"what is (\d+) plus (\d+)", prompt)
    wanted = words.COLOR_OF[color[1]] if color else str(int(total[1]) + int(total[2])) if total else ""
    if not wanted:
        return "A"
    found = re.search(rf"\b{wanted} \(([A-D])\)", prompt) or re.search(rf"\(([A-D])\) {wanted}\b", prompt)
    return found[1] if found else "A"


def hidden_number(prompt: str) -> str | None:
    """The number that a question asks for: found in the text before it; None: the prompt asks for none."""
    asked = re.search(r"What is the secret number of (\w+)", prompt)
    asked = asked or re.search(r"The secret number of (\w+) is$", prompt)  # of a base model
    if asked is None:
        return None
    text = prompt[: asked.start()]
    hidden = re.search(rf"The secret number of {asked[1]} is (\d+)\.", text)
    assert hidden is not None, "the question asks for a number that the text doesn't have"
    return "1234567" if LIE == "forgets_late" and hidden.start() > 0.8 * len(prompt) else hidden[1]


def tokens_in(prompt: str) -> int:
    return TEMPLATE_TOKENS + len(re.findall(r"\d|[^\W\d]+|[^\w\s]", prompt)) if DIGITS else len(prompt.split())


def make_text(prompt: str, max_tokens: int, fixed: bool) -> tuple[str, str, int]:
    """Reasoning, body and token count of an answer."""
    if not fixed:
        if prompt in SANE:
            return "easy", "" if LIE in ("blank", "cut_off") else "Lorem ipsum" if LIE == "insane" else SANE[prompt], 12
        if (hidden := hidden_number(prompt)) is not None:
            body = "" if LIE in ("blank", "sane_but_blank") else f"It is {hidden}."
            return f"a number ? 7654321 or {hidden}", body, 12
        if "Python program" in prompt:
            return "a program ?", PROGRAM.format("1 + " if LIE == "wrong_program" else ""), 12
        letter = "A" if LIE == "at_chance" else answer_letter(prompt)
        if LIE == "half_wrong" and sum(prompt.encode()) % 2:
            letter = {"A": "B", "B": "C", "C": "D", "D": "A"}[letter]
        body = "" if LIE in ("blank", "sane_but_blank", "cut_off") else f"The answer is ({letter})"
        if LIE == "two_letters":
            body += f", and not ({'B' if letter == 'A' else 'A'})"
        return "maybe (A) ?", body, 12
    tokens = max_tokens - 3 if LIE == "short" else max_tokens
    if LIE == "blank":
        return "", "", tokens
    start = sum(prompt.encode()) % 1000
    said = ["fox red"] * tokens if LIE == "loop" else [str(start + 7 * i) for i in range(tokens)]
    return "", " ".join(said), tokens


def cut(reasoning: str, text: str, stop: list[str]) -> tuple[str | None, str | None, str | None]:
    """Reasoning, content and stop_reason of an answer that ends before its first stop string, wherever that is."""
    for part in (reasoning, text):
        places = [(part.index(string), string) for string in stop if string in part]
        if places:
            end, string = min(places)
            return (reasoning[:end], None, string) if part is reasoning else (reasoning, text[:end], string)
    return reasoning, text, None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    counted = False

    def log_message(self, *_: Any) -> None:
        return

    def do_GET(self) -> None:
        if self.path in ("/health", "/metrics"):
            self.reply(200, "text/plain", metrics() if self.path == "/metrics" else "")
        elif self.path == "/version":
            self.document(200, {"version": "fake"})
        elif self.path == "/v1/models":
            name = os.environ.get("FAKE_ENGINE_SERVES") or sys.argv[sys.argv.index("--served-model-name") + 1]
            self.document(200, {"object": "list", "data": [{"id": name}]})
        else:
            self.reply(404, "text/plain", "")

    def do_POST(self) -> None:
        self.counted = True
        enter(+1)
        try:
            self.answer()
        finally:
            self.leave()

    def leave(self) -> None:
        """Before an answer's last bytes: whoever has read them may ask again before we do anything else."""
        if self.counted:
            self.counted = False
            enter(-1)

    def answer(self) -> None:
        arrived = time.monotonic()
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        continues = "prompt" in body  # a text of a base model, whose answer has another shape
        prompt = body["prompt"] if continues else body["messages"][-1]["content"]
        assert continues == (self.path == "/v1/completions") or self.path == "/tokenize"
        if self.path == "/tokenize":
            found = {"count": tokens_in(prompt), "max_model_len": 2048}
            self.document(404, {"detail": "Not Found"}) if LIE == "no_tokenize" else self.document(200, found)
            return
        if DIGITS and tokens_in(prompt) + body["max_tokens"] > int(sys.argv[sys.argv.index("--max-model-len") + 1]):
            self.document(400, {"error": {"message": "maximum context length exceeded"}})
            return
        reasoning, text, tokens = make_text(prompt, body["max_tokens"], bool(body.get("ignore_eos")))
        if LIE == "says_less":
            text = " ".join(text.split()[: len(text.split()) // 2])
        number = count_request(prompt, body)
        if LIE == "error":
            self.document(500, {"error": {"message": "the fake engine fails on purpose"}})
            return
        if LIE == "hangs_later" and (os.path.exists(HANG) if HANG else number > AFTER):  # noqa: PTH110
            threading.Event().wait()
        if (LIE == "dies" and body.get("ignore_eos")) or (LIE == "dies_later" and number > AFTER):
            print("RuntimeError: the fake engine dies on purpose", flush=True)
            os._exit(0)
        asked_whole = not body.get("stream") and not body.get("ignore_eos")
        timed = bool(not asked_whole or body.get("return_token_ids")) and "logprobs" not in body
        if LIE == "some_errors" and timed and number % 20 == 0:
            self.document(500, {"error": {"message": "one in twenty"}})
            return
        read = min(tokens_in(prompt), READ_TOKENS) if LIE == "reads_less" else tokens_in(prompt)
        usage = {"prompt_tokens": read, "completion_tokens": fake_faults.told(tokens)}
        finish = "length" if body.get("ignore_eos") or LIE == "cut_off" or continues else "stop"
        if LIE == "loops" and body.get("repetition_detection"):
            text, finish = "easy", "repetition"
        fake_faults.prefill(prompt)
        if timed and number > AFTER and fake_faults.LIE in fake_faults.STANDING_STILL:
            self.stand_still(bool(body.get("stream")))
            return
        if body.get("stream"):
            cut_off = LIE == "cuts" and number % 2 == 0
            self.stream(text, tokens, usage, finish, cut_off, arrived, bool(body.get("return_token_ids")), continues)
        else:
            with slot() as slower:
                time.sleep(tokens * token_s() * slower)
            took_s = time.monotonic() - arrived
            stop = [body["stop"]] if isinstance(body.get("stop"), str) else body.get("stop") or []
            thoughts, content, stop_reason = cut(reasoning, text, stop)
            if asked_whole:
                thoughts, content = fake_faults.left_in(thoughts, content)
            message = {"role": "assistant", "content": content, "reasoning": thoughts}
            choice = {"index": 0, "message": message, "finish_reason": finish, "stop_reason": stop_reason}
            if body.get("return_token_ids"):
                ids = [sum(word.encode()) for word in text.split()]
                unseen = 0 if body.get("ignore_eos") else tokens - len(ids)  # what stands around a natural answer
                choice["token_ids"] = (ids + [0] * unseen)[: tokens // 2 if LIE == "says_less" else None]
            if body.get("logprobs") or (continues and "logprobs" in body):
                choice["logprobs"] = {"content": [logprobs(word) for word in text.split()]}
            if continues:
                choice = as_text(choice, text)
            book(tokens)
            answer = {"choices": [choice], "usage": fake_faults.accounted(usage)}
            answer |= metrics_of(tokens, took_s / tokens, took_s)
            cut_off = LIE == "cuts" and timed and asked_whole and number % 2 == 0
            self.document(200, fake_faults.said(answer), cut_off)

    def begin(self, kind: str) -> None:
        """An answer whose length nobody says: its connection closes behind it."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        self.end_headers()

    def stand_still(self, streams: bool) -> None:
        """Begin an answer that never ends, until whoever asked is gone."""
        self.begin("text/event-stream" if streams else "application/json")
        fake_faults.stand_still(self.wfile, self.connection)

    def stream(
        self, text: str, tokens: int, usage: dict[str, int], finish: str, cut: bool, arrived: float, ids: bool,
        continues: bool,
    ) -> None:  # fmt: skip
        self.begin("text/event-stream")
        said = text.split() or [""]
        size = tokens // 2 if LIE == "bursts" else CHUNK_TOKENS
        ends = fake_faults.chunk_ends(size, tokens, lumps=LIE == "bursts")
        if LIE == "bursts":  # everything is computed, then thrown at the client in two lumps
            time.sleep(tokens * token_s())
        arrived += fake_faults.hold_back()
        started, each_s = time.monotonic(), token_s()
        for number, (before, sent) in enumerate(pairwise([0, *ends]), 1):
            if LIE != "bursts":  # by deadlines, so that a busy machine does not slow the stream more than the rest
                time.sleep(max(0.0, started + sent * each_s - time.monotonic()))
            elif before:  # so soon after the first that they are two reads, and three times too fast
                time.sleep(size * each_s / 3)
            part = " ".join(said[before:sent]) + " "
            written = number if LIE == "counts_chunks" else fake_faults.told(sent)
            choice: dict[str, Any] = {"text": part} if continues else {"delta": {"content": part}}
            if ids:
                choice["token_ids"] = [*range(before, sent if LIE != "says_less" or sent <= tokens // 2 else before)]
            if not before:
                first_s = time.monotonic() - arrived
            self.event({"choices": [choice], "usage": {**usage, "completion_tokens": written}})
            if not before:  # a first token that came late doesn't make the others come faster
                started = time.monotonic() - sent * each_s
            fake_faults.maybe_die(sent, tokens)
            if cut and sent >= tokens // 2:
                return
        if LIE == "counts_chunks":
            usage["completion_tokens"] = len(ends)
        took_s = time.monotonic() - arrived
        last = {"choices": [{"delta": {}, "finish_reason": finish}], "usage": fake_faults.accounted(usage)}
        self.event({**last, **metrics_of(tokens, first_s, took_s)})
        book(tokens)
        self.leave()
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, event: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(fake_faults.said(event))}\n\n".encode())
        self.wfile.flush()

    def document(self, status: int, said: dict[str, Any], cut: bool = False) -> None:
        self.reply(status, "application/json", json.dumps(said), cut)

    def reply(self, status: int, kind: str, text: str, cut: bool = False) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.leave()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection |= cut


def logprobs(word: str) -> dict[str, Any]:
    """A token as vLLM writes it with `top_logprobs: 2`: the sampled one first. The gap is its length in 1/8 nats."""
    best = -7.5 if LIE == "noise" else -0.25
    first, second = {"token": word, "logprob": best}, {"token": "?", "logprob": best - len(word) / 8}
    return {**first, "top_logprobs": [first, second]}


def as_text(choice: dict[str, Any], text: str) -> dict[str, Any]:
    """A chat's choice as completions have it."""
    del choice["message"]
    if (told := choice.pop("logprobs", None)) is not None:
        written = [entry["logprob"] for entry in told["content"]]
        best = [{f"token_id:{n}": each["logprob"] for n, each in enumerate(entry["top_logprobs"])}
                for entry in told["content"]]  # fmt: skip
        choice["logprobs"] = {"token_logprobs": written, "top_logprobs": best}
    return {**choice, "text": text}


def count_request(prompt: str, body: dict[str, Any]) -> int:
    with lock:
        asked["chat"] += 1
        for name, said in (("FAKE_ENGINE_COUNT", prompt), ("FAKE_ENGINE_BODIES", body)):
            if path := os.environ.get(name):
                with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
                    file.write(json.dumps(said) + "\n")
        return asked["chat"]


@contextmanager
def slot() -> Iterator[float]:
    """The first free slot's factor; 1 beyond the last."""
    with lock:
        taken = min(set(range(len(SLOTS))) - busy, default=len(SLOTS))
        busy.add(taken)
    yield [*SLOTS, 1.0][taken]
    with lock:
        busy.discard(taken)


def enter(change: int) -> None:
    """Count requests in flight; the most of them is written where FAKE_ENGINE_MOST says."""
    with lock:
        in_flight["now"] += change
        path = os.environ.get("FAKE_ENGINE_MOST")
        if path and in_flight["now"] > in_flight["most"]:  # only then: a write that a kill cuts leaves an empty file
            Path(path).write_text(str(in_flight["now"]), encoding="ascii")
        in_flight["most"] = max(in_flight.values())


def token_s() -> float:
    return HURRIED_TOKEN_S if os.path.exists(os.environ.get("FAKE_ENGINE_HURRY", "")) else TOKEN_S  # noqa: PTH110


def book(tokens: int) -> None:
    with lock:
        counters["generation"] += tokens * 2 if LIE == "miscount" else tokens
        counters["finished"] += 1
        drafts = int(tokens // (1 + sum(RATES)))
        counters["drafts"] += drafts
        counters["accepted"] += 0 if LIE == "dead_draft" else round(drafts * sum(RATES))


def metrics_of(tokens: int, first_s: float, took_s: float) -> dict[str, Any]:
    """A request's own account, as vLLM gives it where it is told to: its clock, and its drafts if it drafts."""
    told = 10_000 if LIE == "slow_clock" else 1000
    first_ms, rest_ms = told * first_s, told * (took_s - first_s)
    said: dict[str, Any] = {"queue_time_ms": first_ms / 8, "time_to_first_token_ms": first_ms * 7 / 8}
    said |= {"generation_time_ms": rest_ms, "mean_itl_ms": rest_ms / max(1, tokens - 1)}
    if "--per-request-spec-decode-metrics" in sys.argv:
        steps = int(tokens // (1 + sum(RATES)))
        accepted = 0 if LIE == "dead_draft" else round(steps * sum(RATES))
        reach = ceil(sum(RATES))
        histogram = [0] * (K + 1)
        histogram[reach] = accepted // reach
        histogram[0] += steps - histogram[reach]
        said["speculative_decoding"] = {
            "num_spec_steps": steps + (LIE == "drafts_apart"),
            "num_draft_tokens": K * steps,
            "num_accepted_draft_tokens": accepted,
            "acceptance_histogram": histogram,
        }
    return {"metrics": said} if "--enable-per-request-metrics" in sys.argv else {}


def metrics() -> str:
    labels = '{engine="0",model_name="m"}'
    lines = [
        f"vllm:generation_tokens_total{labels} {counters['generation']}",
        f'vllm:request_success_total{{engine="0",finished_reason="length"}} {counters["finished"]}',
        f"vllm:prefix_cache_hits_total{labels} {16 * counters['finished'] * (LIE == 'cache_hits')}",
        f"vllm:num_preemptions_total{labels} {counters['finished'] * (LIE == 'preempts')}",
        'vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="65536",num_gpu_blocks="4096"} 1.0',
    ]
    if SPECULATES:
        lines += [
            f"vllm:spec_decode_num_drafts_total{labels} {counters['drafts']}",
            f"vllm:spec_decode_num_draft_tokens_total{labels} {counters['drafts'] * K}",
            f"vllm:spec_decode_num_accepted_tokens_total{labels} {counters['accepted']}",
        ]
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{position}"}} '
            f"{round(counters['accepted'] * ([*RATES, *[0] * K][position]) / sum(RATES))}"
            for position in range(K)
        ]
    if LIE == "renamed_counters":
        lines = [line.replace("prefix_cache_hits", "cached").replace("num_preemptions", "evicted") for line in lines]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    broken = os.environ.get("FAKE_ENGINE_BROKEN")
    if (broken and broken in " ".join(sys.argv)) or (LIE == "no_ar" and not SPECULATES):
        sys.exit(REFUSAL)
    if LIE == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while os.path.exists(os.environ.get("FAKE_ENGINE_HOLD", "")):  # noqa: PTH110
        time.sleep(0.05)
    told = STARTUP.replace("Model loading took", "The model has").replace("Available KV", "KV")
    print(told if LIE == "reworded_log" else STARTUP, os.environ.get("FAKE_ENGINE_LOG", ""), sep="\n", flush=True)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
