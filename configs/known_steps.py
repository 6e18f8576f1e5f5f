"""Which steps there are: each file in `configs/steps/` is one, or several that differ in data; none is registered."""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from inspect import isabstract
from operator import or_
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

import configs.steps
from configs.errors import SpecsweepError
from configs.step import MeasuredStep


class StepIncomplete(SpecsweepError):
    """A step lacks a file, or something in it; the text says which."""


def step_names() -> list[str]:
    """Module names in `configs/steps/`, sorted; they have `_` where the step's name has `-`."""
    return sorted(module.name for module in iter_modules(configs.steps.__path__))


def module_of(room: str, spec: MeasuredStep) -> ModuleType:
    """The module that has the name of the spec's file in another room.

    Raises:
        StepIncomplete: there is none.
    """
    return step_module(room, type(spec).__module__.rpartition(".")[2])


def step_module(room: str, name: str) -> ModuleType:
    """The module `<room>/steps/<name>.py`; a room's name is dotted, as `warehouse.dataset`.

    Raises:
        StepIncomplete: there is none.
    """
    try:
        return import_module(f"{room}.steps.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{room}.steps.{name}":
            raise
        raise StepIncomplete(
            f"step {name!r} has no {room.replace('.', '/')}/steps/{name}.py; CONTRIBUTING.md says what a step needs"
        ) from None


def _spec(name: str) -> type[MeasuredStep]:
    """The one spec class in a step's file; none, several or an abstract one is an error."""
    module = step_module("configs", name)
    own = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    specs = [each for each in own if issubclass(each, MeasuredStep)]
    file = f"configs/steps/{name}.py"
    if len(specs) != 1:
        raise StepIncomplete(f"{file} has {len(specs)} classes derived from MeasuredStep; accepted: one")
    if isabstract(specs[0]):
        raise StepIncomplete(f"{file}: {specs[0].__name__} has no workload; without one it would look free")
    return specs[0]


if TYPE_CHECKING:
    Step = MeasuredStep
else:
    Step = Annotated[reduce(or_, map(_spec, step_names())), Field(discriminator="step")]
"""Any step, told apart by its `step` name."""
