"""Thinking that the engine left in a body. Standard library only: the runner and the adapters share it."""

from __future__ import annotations

import re

THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
"""Thoughts that the engine left in the body; those that were cut off have no end."""


def without_thoughts(body: str) -> str:
    """The body without thoughts that the engine left in it, also those whose opening tag was part of the prompt."""
    return THOUGHT.sub("", body).rsplit("</think>", 1)[-1]
