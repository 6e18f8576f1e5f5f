"""The base classes of everything that is read from `configs/`."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class Frozen(BaseModel):
    """Base of every config model: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Grown(Frozen):
    """A model whose `later` fields are not written at their default: stored plans keep the hashes that name them."""

    later: ClassVar[frozenset[str]] = frozenset()
    """The fields that came later."""

    @model_serializer(mode="wrap")
    def _as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        for name in self.later:
            if getattr(self, name) == type(self).model_fields[name].get_default(call_default_factory=True):
                fields.pop(name, None)
        return fields
