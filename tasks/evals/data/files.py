"""Raw records from a file of the user's, in the dataset's own shape."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from configs.checkout import ROOT
from tasks.evals.data.unavailable import DatasetUnavailable

DIGEST_DIGITS = 16
"""Hex digits of a file's digest that rows keep."""


class FromFile(NamedTuple):
    """A file's records, and what names its exact content."""

    records: list[dict[str, Any]]
    revision: str


def from_file(named: str) -> FromFile:
    """Records of a .jsonl, .json, .csv or .parquet file; a relative path is relative to the checkout.

    Raises:
        DatasetUnavailable: there is no such file, or it can't be read as what its name says.
    """
    path = ROOT / Path(named).expanduser()
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise DatasetUnavailable(f"dataset {named!r}: accepted: hub, twin, or a file ending in {' '.join(_READERS)}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DatasetUnavailable(f"dataset {named!r} can't be read: {error.strerror} ({path})") from None
    try:
        records = reader(data)
    except (ValueError, csv.Error, _arrow_error()) as error:
        reason = " ".join(str(error).split())
        raise DatasetUnavailable(f"dataset {named!r} is no {path.suffix[1:]} file: {reason}") from None
    if not records or not all(isinstance(record, dict) for record in records):
        raise DatasetUnavailable(f"dataset {named!r} has no records; accepted: one object with named fields per item")
    return FromFile(records, f"sha256:{hashlib.sha256(data).hexdigest()[:DIGEST_DIGITS]}")


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


def _csv(data: bytes) -> list[Any]:
    return list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True))


def _parquet(data: bytes) -> list[Any]:
    from warehouse.parts import parquet_rows  # pyarrow takes a third of a second, and few datasets are Parquet

    return list(parquet_rows(data))


def _arrow_error() -> type[Exception]:
    import pyarrow

    return pyarrow.ArrowException  # type: ignore[no-any-return]


_READERS: Final[dict[str, Callable[[bytes], list[Any]]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
