"""Thinking that an engine left in the body of an answer, and the body without it.

With the right reasoning parser there is none. Without one, it stands in the body in the format of the model's family.
Adapters import this in the frameworks' environments: standard library only.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Format(NamedTuple):
    """Marks around thoughts, as patterns, and which of them means thoughts without the other.

    The opening may have been part of the prompt; thoughts that were cut off have no end.
    """

    begin: str
    end: str
    begins_alone: bool = True
    ends_alone: bool = True


_NAME = r"(?:[a-z]{1,8}[:|])?(?:think|thinking|thoughts?|reason|reasoning|analysis|reflection|scratchpad)"
_TAG = _NAME + r"(?:_fast|_faster|:[^\s>]{1,40})?"

FORMATS = (
    Format(r"(?i:<(?:think|thinking|thought)>)", rf"(?i:</{_TAG}>)"),  # most families
    Format(rf"(?i:<{_TAG}>)", rf"(?i:</{_TAG}>)", begins_alone=False),  # with prefixes, and words that code has, too
    Format(rf"\A\s*(?i:<{_TAG}>)", rf"(?i:</{_TAG}>)"),
    Format(r"\[THINK\]", r"\[/THINK\]"),  # Mistral
    Format(r"<\|channel>\s*thought\b", r"<channel\|>"),  # Gemma 4
    Format(
        r"(?:<\|start\|>assistant\s*)?<\|channel\|>\s*(?!final)\w+",
        r"(?:<\|start\|>assistant\s*)?<\|channel\|>\s*final\b[^<]{0,80}(?:<\|constrain\|>[^<]{0,40})?<\|message\|>",
    ),  # gpt-oss: harmony's channels
    Format(r"\A\s*analysis(?=[A-Z])", r"assistant\s*final", ends_alone=False),  # the same, marks stripped
    Format(r"\A\s*analysis\b", r"assistant\s*final(?![a-z])", begins_alone=False, ends_alone=False),
    Format(r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),  # Cohere
    Format(r"<\|plamo:begin_think:plamo\|>", r"<\|plamo:end_think:plamo\|>"),
    Format(r"<\|open\|>\s*think\s*<\|sep\|>", r"<\|close\|>\s*think\s*<\|sep\|>"),  # Kimi K3
    Format(r"◁think▷", r"◁/think▷"),  # Kimi-VL
    Format(r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),  # OpenThinker
    Format(r"<\|content_thinking\|>", r"<\|end_message\|>", ends_alone=False),  # Inkling
    Format(r"to=self<\|message\|>", r"<\|eom\|>", ends_alone=False),  # Muse
    Format(r"\A\s*Here(?:'s| is) my thought process:", r"Here(?:'s| is) my response:", False, False),  # Granite
)
"""The marks of vLLM 0.32's reasoning parsers (vllm/reasoning, vllm/parser), and of families that have none."""

_TO_THE_END = (r"(?!)", r"\Z")  # by whether an opening alone means thoughts
_PATTERNS = [
    (
        re.compile(rf"(?:{each.begin}).*?(?:{each.end}|{_TO_THE_END[each.begins_alone]})", re.DOTALL),
        re.compile(each.end),
        each.ends_alone,
    )
    for each in FORMATS
]

_UNMARKED = re.compile(r"\A\s*thought[ \t]*\n", re.IGNORECASE)
"""Gemma 4's thoughts whose marks were stripped as special tokens (vllm#38855): nothing shows where they end."""


def without_thoughts(body: str) -> str:
    """The body without thoughts that the engine left in it; of thoughts whose end can't be told, the last line.

    What is left has no thoughts: to remove them again changes nothing.
    """
    while (text := _shortened(body)) != body:
        body = text
    return text


def end_unknown(body: str) -> bool:
    """Whether the body begins with thoughts of which nobody can tell where they end."""
    return _UNMARKED.match(_marked_removed(body)) is not None


def has_thoughts(body: str) -> bool:
    """Whether there are thoughts in the body, and their end is marked."""
    return any(end.search(body) for _, end, _ in _PATTERNS)


def _shortened(body: str) -> str:
    text = _marked_removed(body)
    return text.rstrip().rpartition("\n")[2] if _UNMARKED.match(text) else text


def _marked_removed(body: str) -> str:
    for whole, end, ends_alone in _PATTERNS:
        body = whole.sub("", body)
        if ends_alone:
            last = max((found.end() for found in end.finditer(body)), default=0)
            body = body[last:]
    return body
