"""Secrets of this process: not in its environment, not in a text, and with a child only where it needs one.

Others can read a process's arguments and first environment, and children inherit it. So a node runner gets its secrets
through a file descriptor and keeps them here. Standard library only: environments are made with it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TextIO, cast
from urllib.parse import unquote

STORE_KEYS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GS_ACCESS_KEY_ID", "GS_SECRET_ACCESS_KEY",
)  # fmt: skip
"""Variables with the keys of a store: only who opens it needs them."""

TOKEN = "HF_TOKEN"
"""The variable with the hub's token."""

NAMES = (*STORE_KEYS, TOKEN)

WHERE_KEYS_LIE = ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "GOOGLE_APPLICATION_CREDENTIALS")
"""Variables that lead to keys."""

FOR_NODES = "SPECSWEEP_NODE_"
"""A variable of this name and a secret's is the secret that nodes get, instead of the one of the secret's own name."""

SHORTEST = 8
"""Characters: a shorter value is no secret, and stands in innocent words."""

_QUOTED = re.compile("%[0-9A-Fa-f]{2}")

_held: dict[str, str] = {}


def secret(name: str) -> str | None:
    """The secret of that name, held or still in the environment; None: there is none."""
    return _held.get(name) or os.environ.get(name) or None


def in_environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The known secrets that an environment has."""
    return {name: env[name] for name in NAMES if env.get(name)}


def receive(fd: int | None, env: MutableMapping[str, str] = os.environ) -> None:
    """Take this process's secrets: out of its environment, and those that a file descriptor brings, as JSON or nothing.

    `fd` is closed. Names that are the user's own go into the environment, for the engine; ours leave it.
    """
    brought: dict[str, str] = {}
    if fd is not None:
        with os.fdopen(fd, encoding="utf-8") as file:
            brought = json.loads(file.read() or "{}")
    hold(in_environment(env) | brought)
    env.update({name: value for name, value in brought.items() if name not in NAMES})
    for name in NAMES:
        env.pop(name, None)


@contextmanager
def handed(values: Mapping[str, str]) -> Iterator[int]:
    """A descriptor from which a child that inherits it can `receive` secrets."""
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb"):
        with os.fdopen(theirs, "w", encoding="utf-8") as file:
            json.dump(dict(values), file)  # some hundred bytes: a pipe takes them without a reader
        yield ours


def hold(values: Mapping[str, str]) -> None:
    """Keep secrets, so that no text shows them."""
    _held.update(values)


def without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """An environment for a child that needs no secret."""
    hidden = (*NAMES, *WHERE_KEYS_LIE)
    return {name: value for name, value in env.items() if name not in hidden and not name.startswith(FOR_NODES)}


def redacted(text: str) -> str:
    """The text with each known secret replaced by its name."""
    return str(_shown(text, _known()))


def redacted_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a table with their texts, and lists of texts, redacted."""
    known = _known()
    return [{name: _shown(value, known) for name, value in row.items()} for row in rows]


def _known() -> dict[str, str]:
    return {name: value for name, value in {**in_environment(), **_held}.items() if len(value) >= SHORTEST}


def _shown(value: Any, known: Mapping[str, str]) -> Any:
    if isinstance(value, list | tuple):
        return [_shown(each, known) for each in value]
    if isinstance(value, str) and known:
        value = _named(value, known)
        if _QUOTED.search(value):
            value = "".join(_unquoted_if_hiding(word, known) for word in re.split(r"(\s+)", value))
    return value


def _unquoted_if_hiding(word: str, known: Mapping[str, str]) -> str:
    """Some quote a few signs of an address, some all, some twice: so the word is read instead of compared."""
    for plain in (once := unquote(word), unquote(once)):
        if (named := _named(plain, known)) != plain:
            return named
    return word


def _named(text: str, known: Mapping[str, str]) -> str:
    for name, hidden in known.items():
        for form in _forms(hidden):
            text = text.replace(form, f"<{name}>")
    return text


@lru_cache(maxsize=64)
def _forms(hidden: str) -> tuple[str, ...]:
    """A secret as it is, and as it stands anywhere in a text in base64, such as a header's `user:secret`."""
    data = hidden.encode(errors="surrogatepass")
    forms = [hidden]
    for before in range(3):  # bytes in front of it: three are four characters, so no other number matters
        shifted = bytes(before) + data
        first, end = -(-before * 8 // 6), len(shifted) * 8 // 6  # the characters that its bytes alone decide
        forms += [encoded.decode()[first:end] for encoded in (b64encode(shifted), urlsafe_b64encode(shifted))]
    return tuple(dict.fromkeys(forms))


class _Redacted:
    """A text stream that is another one but for its `write`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redacted(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guard_streams() -> None:
    """From now on stdout and stderr show no secret, in a traceback neither."""
    sys.stdout, sys.stderr = (cast(TextIO, _Redacted(stream)) for stream in (sys.stdout, sys.stderr))


def guard_logs() -> None:
    """From now on no log record of any library shows a secret. May be called again."""
    logging.setLogRecordFactory(_record)


def _record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    record = logging.LogRecord(*args, **kwargs)
    try:
        said = record.getMessage()
    except Exception:  # whoever logs has another trouble to tell of than a wrong format
        said = f"{record.msg} {record.args}"
    record.msg, record.args = redacted(said), ()
    if record.exc_info and record.exc_info[0] is not None:
        record.exc_text = redacted("".join(traceback.format_exception(*record.exc_info)).rstrip())
    return record
