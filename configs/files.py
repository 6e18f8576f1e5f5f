"""Named YAML files: read with the line of everything in them, and made into frozen models, or into one line of error.

PyYAML's `safe_load` forgets where a value stood and keeps the last of two equal keys, so the nodes are walked first.
"""

from __future__ import annotations

import json
import math
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml.reader import ReaderError

from configs.checkout import ROOT
from configs.errors import SpecsweepError

Loc = tuple[str | int, ...]
"""Where a value stands inside a document: keys and list indexes from the top."""

Fault = tuple[Loc, str]
"""Where something is wrong, and the problem with what would be accepted."""


class ConfigError(SpecsweepError, ValueError):
    """A config that can't be used, in one line: `path` or `path:line`, dotted field or "", what would be accepted."""

    def __init__(self, where: str, field: str, problem: str) -> None:
        super().__init__(": ".join(part for part in (where, field, " ".join(problem.split())) if part))


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

    def refuse(self, faults: Iterator[Fault]) -> None:
        """Raise the first of the faults as a `ConfigError`, if there is any."""
        for loc, problem in faults:
            raise self.error(loc, problem)

    def error(self, loc: Loc, problem: str) -> ConfigError:
        """A `ConfigError` that points at `loc` of this file."""
        return ConfigError(f"{shown_path(self.path)}:{self.line(loc)}", dotted(loc), problem)


def read_document(path: Path) -> Document:
    """One YAML file's values and their lines; `ConfigError`: unreadable, empty, no YAML, no mapping, a key twice."""
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
        raise ConfigError(where, "", f"not valid YAML: {_cause(error, text.splitlines())}") from error
    except ReaderError as error:  # the loader's first look at the text
        where, code = f"{shown}:{text.count(chr(10), 0, error.position) + 1}", ord(text[error.position])
        problem = f"the character U+{code:04X} is no text; remove it, or save the file as UTF-8"
        raise ConfigError(where, "", problem) from error
    except RecursionError as error:
        raise ConfigError(shown, "", "not valid YAML: too deeply nested; accepted: a few levels") from error
    except ConfigError:
        raise
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(shown, "", f"not valid YAML: {error}") from error


GLUED = re.compile(r"(?:^|[{,]|- )\s*([A-Za-z_]\w*):([^\s/{,}]+)")
"""`key:value` without the blank that makes it a key with a value; no address, as `https://...`."""


def _cause(error: yaml.MarkedYAMLError, lines: Sequence[str]) -> str:
    """What the parser said, where what it stumbled over begins, and a blank that is missing up to there."""
    found, began, said = error.problem_mark, error.context_mark, str(error.problem or error.context)
    last = len(lines) if found is None else found.line + 1
    first = max(0, last - 2) if began is None else began.line
    if began is not None and error.problem and began.line + 1 < last:
        said += f" {error.context}, from line {began.line + 1} on"
    glued = next(filter(None, map(GLUED.search, lines[first:last])), None)
    return said if glued is None else f"{said}; write `{glued[1]}: {glued[2]}`, with a blank"


def _parsed(path: Path, loader: yaml.SafeLoader) -> Document:
    shown = shown_path(path)
    try:
        node = loader.get_single_node()
        if node is None:
            raise ConfigError(f"{shown}:1", "", "the file is empty; accepted: lines such as `name: ...`")
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{shown}:{_line(node)}", "", "not a mapping; accepted: lines such as `name: ...`")
        lines = dict(_walk(node, (), shown, frozenset()))
        return Document(path, loader.construct_document(node), lines)
    finally:
        loader.dispose()


def _walk(node: yaml.Node, loc: Loc, shown: str, around: frozenset[int]) -> Iterator[tuple[Loc, int]]:
    """Yield the line of everything under `node`; `around` are the nodes that contain it."""
    if id(node) in around:
        raise ConfigError(f"{shown}:{_line(node)}", dotted(loc), "an alias that contains itself; write it out")
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


MEANT = 3  # most names that an error asks back


def accepted(
    value: object, names: list[str], missing: Sequence[str] = (), called: Mapping[str, str] | None = None
) -> str:
    """The tail of an error: what would be accepted, and what was probably meant, most likely one of the `missing`.

    `called`: what others call some of the names. Capitals aside, what is called so was meant, else the few that begin
    so, else the one most alike.
    """
    said = str(value).lower()
    known = {other.lower(): name for other, name in [*(called or {}).items(), *((name, name) for name in names)]}
    begin = {known[each] for each in known if said and each.startswith(said)}
    close = get_close_matches(str(value), missing, n=1) or ([known[said]] if said in known else sorted(begin))
    if not 0 < len(close) <= MEANT:
        close = [known[each] for each in get_close_matches(said, known, n=1)]
    meant = f" (did you mean {' or '.join(map(repr, close))}?)" if close else ""
    return f"accepted: {', '.join(names) if names else 'none'}{meant}"


NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]*")
"""Names become parts of paths, cluster names and run ids. No capitals: `H100` beside `h100` would be two GPUs."""

PLAIN_WORDS = {
    "a valid string": "text",
    "a valid integer": "a whole number",
    "a valid boolean": "true or false",
    "a valid array": "a list",
    "a valid tuple": "a list",
    "an object": "a mapping",
}
"""Pydantic's words for types, and what someone editing YAML calls them."""

TAG = "step"
"""The key that tells the members of a union apart."""

_M = TypeVar("_M", bound=BaseModel)


class Misspelt(NamedTuple):
    """A misspelt key. `twin` is where pydantic has a second error about it, the missing key; None: it has only one."""

    loc: Loc
    problem: str
    twin: Loc | None


def parse(document: Document, model: type[_M], stem: str | None = None) -> _M:
    """Check a document against a frozen model; raises `ConfigError`. Types are strict, so `"5"` isn't a number.

    `stem` is the name that the file must state; None: it wasn't looked up by name.
    """
    for loc, problem in _not_json(document.data, ()):
        raise document.error(loc, problem)
    try:
        parsed = model.model_validate_json(json.dumps(document.data, default=str), strict=True)
    except ValidationError as error:
        details = [detail for detail in error.errors(include_url=False) if not _follows(detail)]
        misspelt = list(_misspelt(model, details))  # the first of them, else pydantic's first error, with how many more
        loc, problem = misspelt[0][:2] if misspelt else (details[0]["loc"], _problem(model, details[0]))
        others = len(details) - 1 - len({mistake.twin for mistake in misspelt if mistake.twin})
        more = f" (and {others} more in this file)" if others else ""
        raise document.error(_plain_loc(document.data, loc), problem + more) from error
    name = str(getattr(parsed, "name", stem))
    if not NAME_PATTERN.fullmatch(name):
        problem = f"{name!r} is no name; accepted: small letters and digits, then also '.', '_' and '-'"
        raise document.error(("name",), problem)
    if stem is not None and name != stem:
        raise document.error(("name",), f"{name!r} isn't the name of the file; accepted: {stem}")
    return parsed


def _follows(detail: ErrorDetails) -> bool:
    """Whether a list is too short only because what is in it was refused, which pydantic says as well."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def _not_json(value: object, loc: Loc) -> Iterator[tuple[Loc, str]]:
    """Numbers and keys that YAML has and JSON hasn't, each with its place."""
    if isinstance(value, float) and not math.isfinite(value):
        yield loc, f"{value} isn't accepted; accepted: a finite number"
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _not_json(inner, (*loc, i))
    elif isinstance(value, dict):
        for key, inner in value.items():
            here = (*loc, str(key))
            if not isinstance(key, str | int | float | None):
                yield here, f"the key {str(key)!r} is no text; accepted: a key in quotes"
            yield from _not_json(inner, here)


def _misspelt(model: type[BaseModel], details: list[ErrorDetails]) -> Iterator[Misspelt]:
    """Unknown keys that resemble a key that is missing beside them, or have their value in them."""
    missing: dict[Loc, list[str]] = {}
    unknown: list[Loc] = []
    for detail in details:
        kind, loc, value = detail["type"], detail["loc"], detail["input"]
        if kind == "missing":
            missing.setdefault(loc[:-1], []).append(str(loc[-1]))
        elif kind == "extra_forbidden":
            unknown.append(loc)
        elif kind == "union_tag_not_found" and isinstance(value, dict):
            missing[loc] = [TAG]
            unknown += [(*loc, key) for key in value if key not in _keys_at(model, loc)]
    for *around, key in unknown:
        beside, known = missing.get(tuple(around), []), _keys_at(model, tuple(around))
        if (glued := GLUED.fullmatch(str(key))) and glued[1] in known:
            problem = f"a blank is missing after the colon; write `{glued[1]}: {glued[2]}`"
            yield Misspelt((*around, key), problem, (*around, glued[1]) if glued[1] in beside else None)
            continue
        for meant in get_close_matches(str(key), beside, n=1):
            problem = f"unknown key; {accepted(key, known, beside)}"
            yield Misspelt((*around, key), problem, None if meant == TAG else (*around, meant))


def _problem(model: type[BaseModel], detail: ErrorDetails) -> str:
    """What is wrong with one value, in words for someone editing YAML."""
    kind, value, loc = detail["type"], detail["input"], detail["loc"]
    if kind == "extra_forbidden":
        return f"unknown key; {accepted(loc[-1], _keys_at(model, loc[:-1]))}"
    if kind == "missing":
        return "this key is missing; add it"
    if kind == "union_tag_not_found":
        return f"the key {TAG!r} is missing; add it"
    if kind in ("literal_error", "union_tag_invalid"):
        options = detail["ctx"].get("expected") or detail["ctx"]["expected_tags"]
        names = re.findall(r"'([^']*)'", str(options))
        said = value.get(TAG) if isinstance(value, dict) else value
        return f"{said!r} isn't known; {accepted(said, names)}"
    message = detail["msg"].removeprefix("Input should be ").removeprefix("String should have ")
    message = message.replace("String should match pattern", "text that matches")
    if kind == "too_short":
        message = f"a list of at least {detail['ctx']['min_length']} item"
    for jargon, plain in PLAIN_WORDS.items():
        message = message.replace(jargon, plain)
    hint = "; put it in quotes" if kind == "string_type" and isinstance(value, int | float | bool) else ""
    said = json.dumps(value, default=str, ensure_ascii=False)
    return f"{said if len(said) <= 60 else f'{said[:57]}...'} isn't accepted; accepted: {message}{hint}"


def _plain_loc(data: Any, loc: Loc) -> Loc:
    """Pydantic's location without the union tags that it puts between a list item and its keys."""
    plain: list[str | int] = []
    for part in loc:
        if isinstance(data, dict) and part not in data and data.get(TAG) == part:
            continue
        plain.append(part)
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int)
        data = data[part] if inside else None
    return tuple(plain)


def _keys_at(model: type[BaseModel], loc: Loc) -> list[str]:
    """The keys that the model accepts at one of pydantic's locations."""
    candidates = [model]
    for part in loc:
        if isinstance(part, int):
            continue
        tagged = [one for one in candidates if len(candidates) > 1 and TAG in one.model_fields]
        tagged = [one for one in tagged if part in get_args(one.model_fields[TAG].annotation)]
        if tagged:
            candidates = tagged
        else:
            fields = [one.model_fields[part].annotation for one in candidates if part in one.model_fields]
            candidates = [inner for field in fields for inner in _models_in(field)]
    return list(dict.fromkeys(key for one in candidates for key in one.model_fields))


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every model named in a type annotation, through unions, tuples and `Annotated`."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        if issubclass(annotation, BaseModel):
            yield annotation
    elif get_origin(annotation) is not None or isinstance(annotation, types.UnionType):
        for inner in get_args(annotation):
            yield from _models_in(inner)


Folder = Literal["models", "shapes", "techniques", "replays", "precisions", "engines", "gpus", "suites", "sweeps"]
"""The sub-folders of `configs/`, each holding one kind of file."""

OTHER_NAMES = ("hub_id", "sky_names", "reported_as")
"""Keys in the files of models and gpus. Their values are names that others use."""

SHIPPED_ROOT = ROOT / "configs"
"""The folder of the configs that ship with specsweep."""


@dataclass(frozen=True)
class Library:
    """The folders in which names are looked up, the first that has one wins; each file is read once."""

    roots: tuple[Path, ...] = (SHIPPED_ROOT,)
    _files: dict[Folder, dict[str, Path]] = field(default_factory=dict, compare=False, repr=False)
    _loaded: dict[tuple[Folder, str], BaseModel] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def beside(cls, folder: Path | None) -> Library:
        """The shipped library, preceded by a user's own `models/`, `suites/` ... in `folder`."""
        return cls(roots=(folder, SHIPPED_ROOT)) if folder is not None else cls()

    def files(self, folder: Folder) -> dict[str, Path]:
        """Every name of one kind and its file, sorted by name."""
        if folder not in self._files:
            found: dict[str, Path] = {}
            for root in self.roots:
                for path in sorted((root / folder).glob("*.y*ml")):
                    found.setdefault(path.stem, path)
            self._files[folder] = dict(sorted(found.items()))
        return self._files[folder]

    def document(self, folder: Folder, name: str) -> Document:
        """Read the file that has a name; raises `ConfigError`."""
        files = self.files(folder)
        if name not in files:
            problem = f"no file for {name!r}; {accepted(name, list(files))}"
            raise ConfigError(shown_path(self.roots[0] / folder), "", problem)
        return read_document(files[name])

    def called(self, folder: Folder) -> dict[str, str]:
        """What hub, catalogue and driver call the things of one kind, with our names; of wrong files, nothing."""
        found: dict[str, str] = {}
        for name in self.files(folder):
            try:
                said = self.document(folder, name).data
            except ConfigError:  # whoever names that file is told; here another name is looked for
                continue
            for others in (said.get(key) or () for key in OTHER_NAMES):
                for other in others if isinstance(others, list) else [others]:
                    found.setdefault(str(other), name)
        return found

    def load(self, folder: Folder, name: str, model: type[_M]) -> _M:
        """Read the file of a name into its frozen model; raises `ConfigError`."""
        loaded = self._loaded.get((folder, name))
        if not isinstance(loaded, model):
            loaded = self._loaded[folder, name] = parse(self.document(folder, name), model, stem=name)
        return loaded
