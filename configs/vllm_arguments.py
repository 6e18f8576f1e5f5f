"""Every argument of `vllm serve`, as the pinned release parses it: which of them some words give, in whatever spelling.

`vllm_arguments.json` has the parser's own list (canonical name, words taken as argparse's `nargs`, spellings). A test
holds it against the parser, which the control side doesn't have. Like there, `_` in a flag is `-`, a prefix that fits
one flag is that flag, `--flag.key=value` is a part of `--flag`, and of a flag given twice the last counts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, NoReturn

from configs.errors import SpecsweepError

PINNED = "0.32.0"
"""The vLLM of our environments (requirements/engine-cpu.txt) and of the shipped image."""

_LIST = Path(__file__).with_suffix(".json")


class Given(NamedTuple):
    """What words give: each canonical name with its text, None where switched off, and the words without a use."""

    values: Mapping[str, str | None]
    unknown: tuple[str, ...]


class BadArguments(SpecsweepError):
    """The parser refuses the words: one has no value, or is a prefix of several flags."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadArguments(message)


@cache
def _parser() -> _Parser:
    parser = _Parser(add_help=False, argument_default=argparse.SUPPRESS)
    for name, (takes, *flags) in json.loads(_LIST.read_text(encoding="utf-8")).items():
        if takes == 0:
            off = [flag for flag in flags if flag.startswith("--no-") and f"--{flag[5:]}" in flags]
            parser.add_argument(*(flag for flag in flags if flag not in off), dest=name, action="store_const", const="")
            if off:
                parser.add_argument(*off, dest=name, action="store_const", const=None)
        else:
            parser.add_argument(*flags, dest=name, nargs=None if takes == 1 else takes)
    return parser


def spellings() -> list[str]:
    """Every flag, as the parser knows it."""
    return [flag for action in _parser()._actions for flag in action.option_strings]


def named(word: str) -> str | None:
    """The canonical name of the argument whose flag begins a word; None: no flag, an unknown one, or one of several."""
    if not word.startswith("-"):
        return None
    flag = normal(word)[0].partition("=")[0]
    known = _parser()._option_string_actions
    names = {known[flag].dest} if flag in known else {known[each].dest for each in known if each.startswith(flag)}
    return names.pop() if len(names) == 1 else None


@cache
def resolve(words: tuple[str, ...]) -> Given:
    """What the words give; raises BadArguments."""
    found, unknown = _parser().parse_known_args([each for word in words for each in normal(word)])
    values = {name: " ".join(value) if isinstance(value, list) else value for name, value in vars(found).items()}
    return Given(MappingProxyType(values), tuple(unknown))


def normal(word: str) -> list[str]:
    """A word as the parser reads it: dashes in its flag, a part of a JSON argument as all of it, -O as its level."""
    flag, equals, value = word.partition("=")
    if not word.startswith("-"):
        return [word]
    if word.startswith("-O"):
        return ["--optimization-level", *([word[2:].removeprefix("=")] if word != "-O" else [])]
    if word.startswith("--"):
        flag = flag.replace("_", "-")
    whole, dot, _ = flag.partition(".")
    return [whole + (equals or "=" if dot else equals) + value]


def number_of(words: Sequence[str], name: str) -> int:
    """A whole number above 0 that the words give an argument; 1: none, or one that vLLM doesn't start with."""
    given = given_by(words).get(name, "")
    return int(given) if given.isdecimal() and int(given) else 1


def given_by(words: Sequence[str]) -> dict[str, str]:
    """The canonical names and texts that the words give; nothing where the parser refuses them, or of what is off."""
    try:
        return {name: value for name, value in resolve(tuple(words)).values.items() if value is not None}
    except BadArguments:
        return {}
