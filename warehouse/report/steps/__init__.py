"""A step's sections of the page, `SECTIONS`: every file here adds its own; a step that has none has no file."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from configs.step import more_steps
from warehouse.report.display.markup import Section

__path__ += more_steps("warehouse/report")


def step_sections() -> list[Section]:
    """All steps' sections, not yet in the page's order."""
    files = [import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__)]
    return [section for file in files for section in file.SECTIONS]
