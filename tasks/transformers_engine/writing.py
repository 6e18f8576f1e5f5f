"""From token ids, as they are decided, to text: thinking apart from the answer, and cut before a stop string."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Decode = Callable[[Sequence[int]], str]  # token ids to text, without special tokens
UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what a decoder writes for a part of a character


class Markup(NamedTuple):
    """The tokens around a model's thinking, and the words behind the first that are no thought."""

    start: str
    end: str
    label: str = ""


CHANNELS: Mapping[str, Markup] = {
    "gemma4": Markup("<|channel>", "<channel|>", "thought\n"),
    "qwen3": Markup("<think>", "</think>", "\n"),
}
"""By vLLM's name of the reasoning parser, which is the model's file's."""


class Text(NamedTuple):
    """What was written: thoughts, and the answer."""

    reasoning: str = ""
    content: str = ""

    def then(self, more: Text) -> Text:
        """Both, one after the other."""
        return Text(self.reasoning + more.reasoning, self.content + more.content)


class Channel(NamedTuple):
    """A tokenizer's ids of the marks around the thinking, and whether a prompt ends inside it."""

    start: int
    end: int
    label: str
    is_open: bool

    @classmethod
    def of(cls, markup: Markup, id_of: Callable[[str], int], prompt: Sequence[int]) -> Channel:
        """The channel as a prompt leaves it: open if the last mark in it opens."""
        start, end = id_of(markup.start), id_of(markup.end)
        last = next((token for token in reversed(prompt) if token in (start, end)), end)
        return cls(start, end, markup.label, last == start)


class Writer:
    """The text of one answer, step by step. `stopped_by` is the stop string that ended it."""

    def __init__(self, decode: Decode, channel: Channel | None = None, stop: Sequence[str] = ()) -> None:
        self.stopped_by: str | None = None
        self._decode, self._channel, self._stop = decode, channel, tuple(stop)
        self._thinks = channel is not None and channel.is_open
        self._part = self._new_part()

    def push(self, token_ids: Sequence[int]) -> Text:
        """What these tokens add. Nothing comes behind a stop string."""
        said = Text()
        for token in token_ids:
            if self.stopped_by is not None:
                break
            marks = self._channel is not None and token in (self._channel.start, self._channel.end)
            said = said.then(self._close() if marks else self._said(self._part.push(token, self._stop)))
            if marks and self._channel is not None:
                self._thinks = token == self._channel.start
                self._part = self._new_part()
        return said

    def end(self) -> Text:
        """What was held back until now."""
        return Text() if self.stopped_by is not None else self._close()

    def _close(self) -> Text:
        return self._said(self._part.close(self._stop))

    def _said(self, text: str) -> Text:
        self.stopped_by = self._part.stopped_by
        return Text(reasoning=text) if self._thinks else Text(content=text)

    def _new_part(self) -> _Part:
        return _Part(self._decode, self._channel.label if self._thinks and self._channel is not None else "")


class _Part:
    """The text of one stretch of thinking, or of answer."""

    def __init__(self, decode: Decode, label: str) -> None:
        self.stopped_by: str | None = None
        self._decode, self._label = decode, label
        self._ids: list[int] = []
        self._begin = self._read = 0
        self._held = ""

    def push(self, token: int, stop: Sequence[str]) -> str:
        self._ids.append(token)
        return self._released(self._decoded(), stop, is_last=False)

    def close(self, stop: Sequence[str]) -> str:
        rest = self._decode(self._ids[self._begin :])[len(self._decode(self._ids[self._begin : self._read])) :]
        self._begin = self._read = len(self._ids)
        return self._released(rest, stop, is_last=True)

    def _decoded(self) -> str:
        """Text of the tokens since the last call, read with a few before them: a word's blank may depend on those."""
        before = self._decode(self._ids[self._begin : self._read])
        both = self._decode(self._ids[self._begin :])
        if both.endswith(UNFINISHED):
            return ""
        self._begin, self._read = self._read, len(self._ids)
        return both[len(before) :]

    def _released(self, text: str, stop: Sequence[str], *, is_last: bool) -> str:
        """As much as is sure: no label, nothing behind a stop string, nothing that may yet become one."""
        text, self._held = self._held + text, ""
        if self._label:
            if not is_last and len(text) < len(self._label) and self._label.startswith(text):
                self._held = text
                return ""
            text, self._label = text.removeprefix(self._label), ""
        found = [(text.index(each), each) for each in stop if each in text]
        if found:
            end, self.stopped_by = min(found)
            return text[:end]
        held = 0 if is_last else _may_become(text, stop)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _may_become(text: str, stop: Sequence[str]) -> int:
    """Characters at the end of `text` that begin a stop string."""
    longest = max(map(len, stop), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(each.startswith(text[-length:]) for each in stop):
            return length
    return 0
