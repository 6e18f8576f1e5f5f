"""HTML that can't forget to escape: elements are built, never pasted together.

A plain `str` is text and is escaped wherever it goes. Only `tag` and `join` make
`Markup`, apart from constants of our own.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Markup(str):
    """HTML that is already safe. Never wrap text from data in this."""

    __slots__ = ()


Child = str | Markup | None
"""What an element may contain; None is left out."""

Attribute = str | int | float | None
"""Value of an attribute; None leaves it out."""

VOID = ("meta",)
"""Elements without an end tag."""


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element. `class_` means `class`, `aria_label` means `aria-label`, `view_box` is SVG's `viewBox`."""
    written = "".join(
        f' {_attribute_name(key)}="{escape(_attribute_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Markup:
    """Elements and texts one after the other."""
    return Markup(
        "".join(child if isinstance(child, Markup) else escape(child) for child in children if child is not None)
    )


def _attribute_name(key: str) -> str:
    if key == "view_box":
        return "viewBox"
    return key.rstrip("_").replace("_", "-")


def _attribute_text(value: str | int | float) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
