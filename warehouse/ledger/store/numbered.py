"""Objects that are numbered in their names: each is created only if absent, and the highest number is the last word."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def numbers(keys: Iterable[str], key_of: Callable[[int], str]) -> list[int]:
    """Numbers that a listing shows, in order; what people leave beside them (`000002 (copy).json`) is none of ours.

    Args:
        keys: the listing.
        key_of: the key that a number has.
    """
    heads = ((key, key.rsplit("/", 1)[-1].partition(".")[0]) for key in keys)
    found = ((key, int(head)) for key, head in heads if head.isdecimal())
    return sorted(number for key, number in found if key_of(number) == key)
