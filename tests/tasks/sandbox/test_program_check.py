"""Whether a program does what its prompt asked: right, wrong, failed, or not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from configs.steps.prompts import Case, Check, Workload, workloads_of
from tasks.sandbox.run import Programs, checked, why_no_sandbox


@pytest.fixture(scope="module", autouse=True)
def fences() -> None:
    missing = why_no_sandbox()
    if missing is not None:
        pytest.skip(missing)


def block(source: str) -> str:
    return f"Sure!\n\n```python\n{source}\n```\nIt prints what you asked for."


TWICE = Check(function="twice", cases=(Case(arguments=(2,), stdout="4"), Case(arguments=("ab",), stdout="abab")))


@pytest.mark.parametrize(
    ("source", "outcome", "reason"),
    [
        ("def twice(x):\n    return x + x", "correct", "all of 2 cases"),
        ("print('hello')\ndef twice(x):\n    return 2 * x\nprint(twice(1))", "correct", "all of 2 cases"),
        ("def twice(x):\n    return x * x", "failed", "case 2: line 2: TypeError: can't multiply sequence by non-int"),
        ("def twice(x):\n    return 5", "wrong", "case 1: printed '5', right is '4'"),
        ("def double(x):\n    return x + x", "failed", "case 1: NameError: no function 'twice' in the program"),
        ("if __name__ == '__main__':\n    exit(1)\ndef twice(x):\n    return x + x", "correct", "all of 2 cases"),
    ],
)
def test_a_function_is_held_to_its_cases(source: str, outcome: str, reason: str) -> None:
    found = checked(block(source), TWICE, fenced=True)
    assert found.outcome == outcome and found.reason.startswith(reason), found


def test_a_program_is_held_to_what_it_prints_and_blanks_at_ends_do_not_count() -> None:
    check = Check(cases=(Case(stdin="3\n", stdout="1\n2\n3\n"),))
    right = "for i in range(int(input())): print(i + 1, end=' \\n')\nprint()"
    assert checked(block(right), check, fenced=True).outcome == "correct"
    wrong = checked(block("print(1)\nprint(2)"), check, fenced=True)
    assert (wrong.outcome, wrong.reason) == ("wrong", r"case 1: printed '1\n2', right is '1\n2\n3'")
    slow = Check(cases=check.cases, seconds=1)
    assert checked(block("while True: pass"), slow, fenced=True).outcome == "timed_out"


def test_an_answer_without_a_program_has_failed() -> None:
    assert checked("I can't.", TWICE, fenced=True) == (
        "failed",
        "no program: no code block in the answer that is ended",
    )


LONGEST_RUN = '''
def longest_run(numbers: list[int]) -> list[int]:
    """Start and length of the longest stretch of numbers that rise by one."""
    best, start = [0, 0], 0
    for place in range(len(numbers)):
        if place and numbers[place] != numbers[place - 1] + 1:
            start = place
        if place - start + 1 > best[1]:
            best = [start, place - start + 1]
    return best
'''

SHOP = '''
from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass
class Article:
    """What is in stock."""

    count: int
    price: int


class Stock:
    """All articles."""

    def __init__(self) -> None:
        self.articles: dict[str, Article] = {}

    def add(self, name: str, count: int, price: int) -> None:
        article = self.articles.setdefault(name, Article(0, price))
        article.count += count
        article.price = price

    def sell(self, name: str, count: int) -> None:
        article = self.articles.get(name, Article(0, 0))
        if article.count < count:
            print(f"only {article.count} {name} left")
        else:
            article.count -= count
            print(f"sold {count} {name} for {count * article.price}")

    def value(self) -> None:
        print(sum(article.count * article.price for article in self.articles.values()))

    def list(self) -> None:
        for name, article in sorted(self.articles.items()):
            if article.count:
                print(name, article.count, article.price)


def main() -> None:
    stock = Stock()
    for line in map(str.strip, sys.stdin):
        match line.split():
            case []:
                continue
            case ["add", name, count, price]:
                stock.add(name, int(count), int(price))
            case ["sell", name, count]:
                stock.sell(name, int(count))
            case ["value"]:
                stock.value()
            case ["list"]:
                stock.list()
            case _:
                print(f"unknown command: {line}")


if __name__ == "__main__":
    main()
'''


@pytest.mark.parametrize(("name", "source"), [("code", LONGEST_RUN), ("longcode", SHOP)])
def test_a_right_answer_to_a_shipped_workload_is_right(name: str, source: str) -> None:
    [asked] = [each for each in workloads_of("seeds") if each.name == name]
    assert asked.check is not None
    assert checked(block(source), asked.check, fenced=True).outcome == "correct"
    broken = source.replace("+ 1 >", "+ 2 >").replace("article.count -= count", "article.count -= 1")
    assert checked(block(broken), asked.check, fenced=True).outcome == "wrong"


WORKLOAD = Workload(name="w", language="Python", prompt="p", max_tokens=64, check=TWICE)


@pytest.fixture
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("tasks.sandbox.run.why_no_sandbox", lambda: "no sandbox here: OSError: Landlock")
    yield


@pytest.mark.usefixtures("no_sandbox")
def test_without_a_sandbox_nothing_is_run_unless_configuration_allows_it() -> None:
    right = block("def twice(x):\n    return x + x")
    refused = Programs(unfenced=False).columns(WORKLOAD, right)
    assert refused == {"program": "not_run", "program_reason": "no sandbox here: OSError: Landlock"}
    told = Programs(unfenced=True).columns(WORKLOAD, right)
    assert told == {"program": "correct", "program_reason": "ran without fences; all of 2 cases"}
    nothing_ran = Programs(unfenced=True).columns(WORKLOAD, "I can't.")["program_reason"]
    assert nothing_ran == "no program: no code block in the answer that is ended"


def test_where_nothing_is_asked_nothing_is_said() -> None:
    unchecked = WORKLOAD.model_copy(update={"check": None})
    assert Programs(unfenced=False).columns(unchecked, block("import os")) == {"program": None, "program_reason": None}
