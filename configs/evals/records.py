"""A user's dataset file: its records, for who plans with their number and for who asks them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.files import Loc, accepted


class DatasetUnavailable(SpecsweepError):
    """Items or prompts can't be had: the line says which part is missing and what would do instead."""


class FromFile(NamedTuple):
    """A file's records, and what names its exact content."""

    records: list[dict[str, Any]]
    revision: str


def from_file(named: str) -> FromFile:
    """Records of a .jsonl, .json, .csv or .parquet file, relative to the checkout; raises `DatasetUnavailable`."""
    path = ROOT / Path(named).expanduser()
    read = _READERS.get(path.suffix)
    if read is None:
        raise DatasetUnavailable(f"dataset {named!r}: accepted: hub, twin, or a file ending in {' '.join(_READERS)}")
    try:
        data = path.read_bytes()
        records = read(data)
    except OSError as error:
        raise DatasetUnavailable(f"dataset {named!r} can't be read: {error.strerror} ({path})") from None
    except (ValueError, csv.Error) as error:  # of a text's encoding, of JSON, and all of Arrow's own
        reason = " ".join(str(error).split())
        raise DatasetUnavailable(f"dataset {named!r} is no {path.suffix[1:]} file: {reason}") from None
    if not records or not all(isinstance(record, dict) for record in records):
        raise DatasetUnavailable(f"dataset {named!r} has no records, or some without named fields")
    return FromFile(records, f"sha256:{hashlib.sha256(data).hexdigest()[:16]}")  # so many digits tell files apart


def records_in(file: Path) -> int:
    """Number of records; a file is read once for each state that it is in. Raises `DatasetUnavailable`."""
    try:
        about = file.stat()
    except OSError as error:
        raise DatasetUnavailable(f"dataset {str(file)!r} can't be read: {error.strerror}") from None
    return _counted(file, about.st_mtime_ns, about.st_size)


@lru_cache(maxsize=64)
def _counted(file: Path, mtime_ns: int, size: int) -> int:
    del mtime_ns, size  # only part of the cache's key
    return len(from_file(str(file)).records)


def file_problems(said: str, file: Path, others: Sequence[str]) -> Iterator[tuple[Loc, str]]:
    """Why `said`, the value of a step's `dataset`, names no file of records; `others` are values that name no file."""
    if file.suffix not in _READERS:
        problem = f"{said!r} is no dataset; {accepted(said, list(others))}"
        yield ("dataset",), f"{problem}, or a file that ends in {', '.join(_READERS)}"
    elif not file.is_file():
        yield ("dataset",), f"no file {str(file)!r}; accepted: a file that is there, relative to {ROOT}"
    else:
        try:
            records_in(file)
        except DatasetUnavailable as error:
            yield ("dataset",), f"{error}; accepted: one record per item"


def _jsonl(data: bytes) -> list[Any]:
    records = []
    for number, line in enumerate(data.decode("utf-8").split("\n"), 1):
        if line.strip():
            try:
                records.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
    return records


def _json(data: bytes) -> list[Any]:
    said = json.loads(data)
    if not isinstance(said, list):
        raise ValueError(f"it holds one {type(said).__name__}, not a list of records")
    return said


def _parquet(data: bytes) -> list[Any]:
    """Read by this thread alone: see `warehouse/ledger/tables.py`."""
    import pyarrow as pa  # takes a third of a second, and few datasets are Parquet
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        return list(file.read(use_threads=False).to_pylist())
    except pa.ArrowException as error:
        raise ValueError(str(error)) from None


_READERS: Final[dict[str, Callable[[bytes], list[Any]]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": lambda data: [*csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)],
    ".parquet": _parquet,
}
