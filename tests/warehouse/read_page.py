"""A report as its reader gets it: elements that are well nested, and the words."""

from html.parser import HTMLParser
from pathlib import Path

from warehouse.dataset.snapshot import publish
from warehouse.ledger.store import Store
from warehouse.report.page import write_report

VOID = {"meta"}


class Page(HTMLParser):
    """Elements of a page, checked to be well nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.stack:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def count(self, name: str) -> int:
        return sum(tag == name for tag, _ in self.elements)


def page_of(store: Store) -> Page:
    publish(store)
    return Page(Path(write_report(store)).read_text(encoding="utf-8"))
