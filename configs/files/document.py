"""One YAML file, read with the line number of everything in it, and the one error that configs can raise.

PyYAML's `safe_load` forgets where a value stood and silently keeps the last of two equal keys. A person who
edits a matrix by hand needs to know both, so the node tree is walked once before it becomes Python values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from configs.errors import SpecsweepError

Loc = tuple[str | int, ...]
"""Where a value stands inside a document: keys and list indexes from the top."""


class ConfigError(SpecsweepError, ValueError):
    """A config that can't be used, in one line: file, line, field, what is wrong, what would be accepted."""

    def __init__(self, where: str, field: str, problem: str) -> None:
        """The parts of the line; an empty one is left out.

        `where` is `path` or `path:line`; `field` is dotted, or "" for the file as a whole.
        """
        self.where = where
        self.field = field
        self.problem = " ".join(problem.split())
        super().__init__(": ".join(part for part in (where, field, self.problem) if part))


@dataclass(frozen=True)
class Document:
    """The plain values of one YAML file and the line on which each of them starts."""

    path: Path
    data: dict[str, Any]
    lines: Mapping[Loc, int]

    def line(self, loc: Loc) -> int:
        """The line of `loc`, or of the nearest thing around it that the file has."""
        while loc and loc not in self.lines:
            loc = loc[:-1]
        return self.lines.get(loc, 1)

    def error(self, loc: Loc, problem: str) -> ConfigError:
        """A `ConfigError` that points at `loc` of this file."""
        return ConfigError(f"{shown_path(self.path)}:{self.line(loc)}", dotted(loc), problem)


def read_document(path: Path) -> Document:
    """Read one YAML file: its values and their lines.

    Raises:
        ConfigError: It can't be read, is empty, isn't YAML, has a key twice, or isn't a mapping at the top.
    """
    shown = shown_path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        problem = f"can't be read ({error.strerror or error}); accepted: a readable YAML file"
        raise ConfigError(shown, "", problem) from error
    except UnicodeDecodeError as error:
        raise ConfigError(shown, "", "isn't UTF-8 text; save the file as UTF-8") from error
    try:
        return _parsed(path, yaml.SafeLoader(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{shown}:{mark.line + 1}" if mark else shown
        raise ConfigError(where, "", f"not valid YAML: {error.problem or error.context}") from error
    except ReaderError as error:  # the loader's first look at the text
        where, code = f"{shown}:{text.count(chr(10), 0, error.position) + 1}", ord(text[error.position])
        raise ConfigError(
            where, "", f"the character U+{code:04X} is no text; remove it, or save the file as UTF-8"
        ) from error
    except RecursionError as error:
        raise ConfigError(shown, "", "not valid YAML: too deeply nested; accepted: a few levels") from error
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(shown, "", f"not valid YAML: {error}") from error


def _parsed(path: Path, loader: yaml.SafeLoader) -> Document:
    shown = shown_path(path)
    try:
        node = loader.get_single_node()
        if node is None:
            raise ConfigError(f"{shown}:1", "", "the file is empty; accepted: lines such as `name: ...`")
        if not isinstance(node, yaml.MappingNode):
            where = f"{shown}:{_line(node)}"
            raise ConfigError(where, "", "not a mapping; accepted: lines such as `name: ...`")
        lines = dict(_walk(node, (), shown, frozenset()))
        return Document(path, loader.construct_document(node), lines)
    finally:
        loader.dispose()


def _walk(node: yaml.Node, loc: Loc, shown: str, around: frozenset[int]) -> Iterator[tuple[Loc, int]]:
    """Yield the line of everything under `node`; `around` are the nodes that contain it."""
    if id(node) in around:
        where = f"{shown}:{_line(node)}"
        raise ConfigError(where, dotted(loc), "an alias that contains itself; write it out")
    yield loc, _line(node)
    inside = around | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk(item, (*loc, index), shown, inside)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            here = (*loc, key)
            if key in seen:
                problem = f"this key is here twice, first on line {seen[key]}; keep one of them"
                raise ConfigError(f"{shown}:{_line(key_node)}", dotted(here), problem)
            seen[key] = _line(key_node)
            yield from _walk(value_node, here, shown, inside)
            yield here, seen[key]


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def dotted(loc: Loc) -> str:
    """A location as people write it: `cells[3].technique`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown_path(path: Path) -> str:
    """A path relative to the current folder if it lies inside, else as it was given."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (OSError, ValueError):
        return str(path)


def accepted(value: object, names: list[str], missing: Sequence[str] = ()) -> str:
    """The tail of an error: what would be accepted, and what was probably meant.

    `missing` are those of `names` that are required but absent: the likeliest to have been meant.
    """
    close = get_close_matches(str(value), missing, n=1) or get_close_matches(str(value), names, n=1)
    meant = f" (did you mean {close[0]!r}?)" if close else ""
    return f"accepted: {', '.join(names) if names else 'none'}{meant}"
