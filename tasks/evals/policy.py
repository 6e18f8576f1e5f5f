"""What every request of an evaluation looks like to the engine, whatever the framework sent.

The fields that reach the engine are listed, not those that don't: a field that nobody thought of can't change what one
framework measures and another doesn't.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import JsonValue

from configs.cell import Cell
from configs.errors import SpecsweepError
from configs.steps.eval import EvalStep

TEMPLATE_KWARGS = "chat_template_kwargs"

REFUSED = {
    "stream": "the tape records whole answers",
    "n": "the tape records one answer per request; more are `samples` of the step",
    "logprobs": "the tape keeps none",
    "top_logprobs": "the tape keeps none",
    "tools": "the tape records text only",
    "functions": "the tape records text only",
    "response_format": "it would bind the answer in one framework and not in another",
    "echo": "the answer would not be the model's alone",
    "continue_final_message": "the answer would not be the model's alone",
}
"""Fields without which the client would get something else than it asked for, and why it can't have them."""


class RequestRefused(SpecsweepError):
    """A request that the tape does not pass on: it would be answered, but not with what its sender expects."""


class Policy(NamedTuple):
    """What the requests of one cell and step have in common. Everything else but the messages is taken out.

    `set` overwrites what the client sent. `template_kwargs` go over the client's own. `seed` is that of sample 0;
    None: no seed is sent.
    """

    cell_key: str
    set: Mapping[str, Any]
    template_kwargs: Mapping[str, JsonValue]
    seed: int | None

    @property
    def max_tokens(self) -> int:
        """The longest answer."""
        return int(self.set["max_tokens"])


def policy_of(cell: Cell, spec: EvalStep) -> Policy:
    """The policy of an evaluation step: its sampling, its length, the model's thinking arguments."""
    fixed: dict[str, Any] = {"model": cell.model.name, "max_tokens": spec.max_tokens}
    if cell.technique.greedy:  # block diffusion samples in its own way and refuses any temperature
        fixed |= {"temperature": spec.temperature, "top_p": spec.top_p}
    return Policy(
        cell_key=cell.cell_key,
        set=fixed,
        template_kwargs=dict(cell.model.chat_template_kwargs),
        seed=spec.seed if cell.technique.greedy else None,
    )


def apply(policy: Policy, body: Mapping[str, Any], sample: int) -> tuple[dict[str, Any], list[str]]:
    """The request as the engine gets it, and the names of the fields that were taken out.

    `stop` is one of these for a reason: vLLM looks for stop strings inside the thinking, too, and then answers with
    content null and finish_reason "stop", which reads like an empty answer (vllm#53066).

    Args:
        policy: what every request gets.
        body: the client's request.
        sample: which answer to the item this is, from 0; it moves the seed.

    Raises:
        RequestRefused: no messages, or one of `REFUSED`.
    """
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise RequestRefused("messages: missing or empty; expected a list of chat messages")
    for name, why in REFUSED.items():
        if not _says_nothing(name, body.get(name)):
            raise RequestRefused(f"{name}: {body[name]!r:.60} is refused, {why}; ask without it")
    sent: dict[str, Any] = {"messages": body["messages"], **policy.set}
    template_kwargs = {**(body.get(TEMPLATE_KWARGS) or {}), **policy.template_kwargs}
    if template_kwargs:
        sent[TEMPLATE_KWARGS] = template_kwargs
    if policy.seed is not None:
        sent["seed"] = policy.seed + sample
    dropped = sorted(name for name, value in body.items() if name not in sent and not _says_nothing(name, value))
    return sent, dropped


def _says_nothing(name: str, value: object) -> bool:
    return value is None or value is False or value in ([], {}, "") or (name == "n" and value == 1)
