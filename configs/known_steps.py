"""Which steps there are: each file in `configs/steps/` is one, or several that differ in data; none is registered."""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from inspect import isabstract
from operator import or_
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import Discriminator, Field, Tag

import configs.steps
from configs.errors import SpecsweepError
from configs.step import MeasuredStep, StepSpec
from configs.unbuilt import OnceUnbuiltStep


class StepIncomplete(SpecsweepError):
    """A step lacks a file, or something in it; the text says which."""


def step_names() -> list[str]:
    """Module names in `configs/steps/`, sorted; they have `_` where the step's name has `-`."""
    return sorted(module.name for module in iter_modules(configs.steps.__path__))


def module_of(room: str, spec: StepSpec) -> ModuleType:
    """The module that has the name of the spec's file in another room.

    Raises:
        StepIncomplete: there is none.
    """
    return step_module(room, type(spec).__module__.rpartition(".")[2])


def step_module(room: str, name: str) -> ModuleType:
    """The module `<room>/steps/<name>.py`.

    Raises:
        StepIncomplete: there is none.
    """
    try:
        return import_module(f"{room}.steps.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{room}.steps.{name}":
            raise
        raise StepIncomplete(
            f"step {name!r} has no {room}/steps/{name}.py; CONTRIBUTING.md says what a step needs"
        ) from None


def _spec(name: str) -> type[StepSpec]:
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


ONCE_UNBUILT = "once unbuilt"
"""Tag of a step that was stored before it was built; no step's name has a space."""


def _stored_kind(step: Any) -> str | None:
    """The tag of a step's class: its name, but for one that was stored before it was built."""
    if not isinstance(step, dict):
        return ONCE_UNBUILT if isinstance(step, OnceUnbuiltStep) else getattr(step, "step", None)
    name = step.get("step")
    return (
        ONCE_UNBUILT if "params" in step and name in get_args(OnceUnbuiltStep.model_fields["step"].annotation) else name
    )


def _tagged(spec: type[StepSpec]) -> Any:
    """A spec class under each of its names."""
    return reduce(or_, [Annotated[spec, Tag(name)] for name in _names_of(spec)])


def _names_of(spec: type[StepSpec]) -> tuple[str, ...]:
    """What the `step` of a spec class may be."""
    return get_args(spec.model_fields["step"].annotation)


if TYPE_CHECKING:
    Step = StepSpec
    StoredStep = StepSpec
else:
    _BUILT = [*map(_spec, step_names())]
    Step = Annotated[reduce(or_, _BUILT), Field(discriminator="step")]
    StoredStep = Annotated[
        reduce(or_, [*map(_tagged, _BUILT), Annotated[OnceUnbuiltStep, Tag(ONCE_UNBUILT)]]),
        Discriminator(_stored_kind),
    ]
"""Any step, told apart by its `step` name: `Step` as suites name it, `StoredStep` as plans keep it for ever."""
