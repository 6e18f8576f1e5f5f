"""The one way a moment is written down."""

from __future__ import annotations

from datetime import UTC, datetime


def now_iso() -> str:
    """This moment, ISO 8601 with milliseconds, UTC."""
    return iso_of(datetime.now(UTC).timestamp())


def iso_of(epoch_s: float) -> str:
    """A moment given in seconds since 1970."""
    return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="milliseconds")


def moment_s(iso: str) -> float:
    """A moment as seconds since 1970."""
    return datetime.fromisoformat(iso).timestamp()


def seconds_between(start_iso: str, end_iso: str) -> float:
    """Length of a span of two moments that one machine wrote, in seconds."""
    return (datetime.fromisoformat(end_iso) - datetime.fromisoformat(start_iso)).total_seconds()
