"""How many records a user's dataset file has: what the plan and the budget rest on before anything reads the items."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.files.document import Loc, accepted


class Uncountable(SpecsweepError):
    """A dataset file whose records can't be counted; the text says why."""


def records_in(file: Path) -> int:
    """Number of records; a file is read once for each state that it is in.

    Raises:
        Uncountable: it is gone, or is not what its name says.
    """
    try:
        about = file.stat()
        return _counted(file, about.st_mtime_ns, about.st_size)
    except OSError as error:
        raise Uncountable(f"dataset {str(file)!r} can't be read: {error.strerror}") from None
    except (ValueError, csv.Error) as error:  # of a text's encoding, of JSON, and all of Arrow's own
        reason = " ".join(str(error).split())
        raise Uncountable(f"dataset {str(file)!r} is no {file.suffix[1:]} file: {reason}") from None


def file_problems(said: str, file: Path, others: Sequence[str]) -> Iterator[tuple[Loc, str]]:
    """Why the value of a step's `dataset` names no file of records; nothing where it does.

    Args:
        said: the value.
        file: what it names.
        others: values that name no file.
    """
    if file.suffix not in FILE_FORMATS:
        problem = f"{said!r} is no dataset; {accepted(said, list(others))}"
        yield ("dataset",), f"{problem}, or a file that ends in {', '.join(FILE_FORMATS)}"
    elif not file.is_file():
        yield ("dataset",), f"no file {str(file)!r}; accepted: a file that is there, relative to {ROOT}"
    else:
        try:
            there = records_in(file)
        except Uncountable as error:
            yield ("dataset",), f"{error}; accepted: one record per item"
            return
        if not there:
            yield ("dataset",), f"{said!r} has no records; accepted: one record per item"


@lru_cache(maxsize=64)
def _counted(file: Path, mtime_ns: int, size: int) -> int:
    del mtime_ns, size  # only part of the cache's key
    return _COUNTERS[file.suffix](file)


def _jsonl(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(bool(line.strip()) for line in lines)


def _json(file: Path) -> int:
    said = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(said, list):
        raise ValueError(f"it holds one {type(said).__name__}, not a list of records")
    return len(said)


def _csv(file: Path) -> int:
    with file.open(encoding="utf-8-sig", newline="") as text:
        return sum(1 for _ in csv.DictReader(text, strict=True))


def _parquet(file: Path) -> int:
    import pyarrow as pa  # takes a third of a second, and few datasets are Parquet
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(file).num_rows)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from None


_COUNTERS: dict[str, Callable[[Path], int]] = {".jsonl": _jsonl, ".json": _json, ".csv": _csv, ".parquet": _parquet}

FILE_FORMATS = tuple(_COUNTERS)
"""What a user's own file may end in."""
