"""The one error of a dataset that can't be had or can't be used."""

from __future__ import annotations

from configs.errors import SpecsweepError


class DatasetUnavailable(SpecsweepError):
    """The items of an evaluation can't be had: the line says which part is missing and what would do instead."""
