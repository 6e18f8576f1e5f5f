"""The server's command line. Options that are transformers' own have its names for them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from tasks.transformers_engine.writing import CHANNELS


class Arguments(NamedTuple):
    """How to serve: the target, what drafts for it if anything does, and where to listen."""

    model: str
    served_model_name: str
    host: str
    port: int
    max_model_len: int  # most tokens of a request, prompt and answer
    revision: str | None
    dtype: str
    reasoning_parser: str | None
    assistant_model: str | None
    assistant_revision: str | None
    num_assistant_tokens: int | None
    num_assistant_tokens_schedule: str
    prompt_lookup_num_tokens: int | None
    max_matching_ngram_size: int
    attn_implementation: str | None
    device: str | None  # None: the first card, or the processor where there is none

    @property
    def k(self) -> int | None:
        """Tokens drafted per step, at the most or to begin with; None: nothing drafts."""
        return self.num_assistant_tokens or self.prompt_lookup_num_tokens


def parse(argv: Sequence[str] | None = None) -> Arguments:
    """Read the command line; ends the process with a usage line where it contradicts itself."""
    parser = argparse.ArgumentParser(prog="python -m tasks.transformers_engine", allow_abbrev=False)
    parser.add_argument("--model", required=True, help="hub id or folder of the target")
    parser.add_argument("--served-model-name", required=True, help="what requests call it")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-model-len", type=_positive, required=True, help="tokens of prompt and answer together")
    parser.add_argument("--revision", help="hub commit of the target")
    parser.add_argument("--dtype", default="auto", help="auto: the checkpoint's")
    parser.add_argument("--reasoning-parser", choices=sorted(CHANNELS), help="how the model marks its thinking")
    parser.add_argument("--assistant-model", help="hub id or folder of what drafts")
    parser.add_argument("--assistant-revision", help="hub commit of what drafts")
    parser.add_argument("--num-assistant-tokens", type=_positive, help="tokens it drafts per step")
    schedules = ("constant", "heuristic", "heuristic_transient")
    parser.add_argument("--num-assistant-tokens-schedule", choices=schedules, default="constant", help="how it goes on")
    parser.add_argument("--prompt-lookup-num-tokens", type=_positive, help="drafts are looked up in the text so far")
    parser.add_argument("--max-matching-ngram-size", type=_positive, default=2, help="longest beginning looked up")
    parser.add_argument("--attn-implementation", help="transformers' name of an attention kernel")
    parser.add_argument("--device", help="such as cuda:0 or cpu")
    said = parser.parse_args(argv)
    if (said.assistant_model is None) != (said.num_assistant_tokens is None):
        parser.error("--assistant-model and --num-assistant-tokens go together")
    if said.assistant_model is not None and said.prompt_lookup_num_tokens is not None:
        parser.error("either --assistant-model drafts or --prompt-lookup-num-tokens, not both")
    return Arguments(**vars(said))


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number
