"""From tokens to text: nothing is said twice or lost, thoughts stand apart, and a stop string is never shown."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tasks.transformers_engine.writing import CHANNELS, Channel, Text, Writer

START, END = 1, 2
MARKS = {"<|channel>": START, "<channel|>": END}


def decode(ids: Sequence[int]) -> str:
    """Ids are bytes; those below 10 are special, and no text."""
    return bytes(each for each in ids if each >= 10).decode(errors="replace")


def said(writer: Writer, text: bytes, size: int) -> tuple[list[Text], Text]:
    """What each step of `size` tokens showed, and all of it."""
    steps = [writer.push(list(text[at : at + size])) for at in range(0, len(text), size)]
    steps.append(writer.end())
    return steps, Text("".join(each.reasoning for each in steps), "".join(each.content for each in steps))


def gemma(prompt: bytes = b"") -> Channel:
    return Channel.of(CHANNELS["gemma4"], MARKS.__getitem__, prompt)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_text_is_the_same_however_many_tokens_a_step_brings(size: int) -> None:
    thought = bytes([START]) + b"thought\nred + blue" + bytes([END]) + "Größe 42 \N{MONKEY}".encode()
    steps, whole = said(Writer(decode, gemma()), thought, size)
    assert whole == Text("red + blue", "Größe 42 \N{MONKEY}")
    assert not any("\N{REPLACEMENT CHARACTER}" in each.content for each in steps), "half a character is held back"


def test_a_prompt_that_opens_the_thinking_is_gone_on_from() -> None:
    _, inside = said(Writer(decode, gemma(bytes([START]))), b"why" + bytes([END]) + b"so", 1)
    _, closed = said(Writer(decode, gemma(bytes([START, END]))), b"so", 1)
    assert (inside, closed) == (Text("why", "so"), Text("", "so"))


def test_thinking_that_never_ends_is_no_answer() -> None:
    _, whole = said(Writer(decode, gemma()), bytes([START]) + b"thought\nhm", 3)
    assert whole == Text("hm", "")


def test_a_label_is_taken_off_only_where_it_is_whole() -> None:
    _, whole = said(Writer(decode, gemma()), bytes([START]) + b"though" + bytes([END]) + b"thought\n", 1)
    assert whole == Text("though", "thought\n")


@pytest.mark.parametrize("size", [1, 3, 100])
def test_an_answer_ends_before_its_stop_string(size: int) -> None:
    writer = Writer(decode, stop=["\n\nQ:", "END"])
    steps, whole = said(writer, b"one\n\ntwo EN three\n\nQ: and END", size)
    assert (whole.content, writer.stopped_by) == ("one\n\ntwo EN three", "\n\nQ:")
    assert "\n\nQ" not in "".join(each.content for each in steps)


def test_what_only_began_like_a_stop_string_is_told_at_the_end() -> None:
    writer = Writer(decode, stop=["END"])
    _, whole = said(writer, b"the EN", 1)
    assert (whole.content, writer.stopped_by) == ("the EN", None)
