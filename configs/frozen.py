"""The base class of everything that is read from `configs/`."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

JsonScalar = str | int | float | bool | None


class Frozen(BaseModel):
    """Base of every config model: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
