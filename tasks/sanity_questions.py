"""Ten questions for chats, ten texts for base models, and how answers are read (a test double reads them).

No working model misses them. Standard library only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from tasks.frameworks.thoughts import without_thoughts


class SanityQuestion(NamedTuple):
    """A question; `wanted` is the answer as a reader would write it, `is_right` reads a body."""

    question_id: str
    language: str
    prompt: str
    wanted: str
    is_right: Callable[[str], bool]


def _says(pattern: str) -> Callable[[str], bool]:
    return lambda body: re.search(pattern, plain(body)) is not None


def _says_only(word: str) -> Callable[[str], bool]:
    """Whether the body is this word and nothing else but punctuation, quotes or marks of emphasis."""
    return lambda body: re.fullmatch(rf"[\W_]*{word}[\W_]*", plain(body)) is not None


def plain(body: str) -> str:
    """A body as it is read: without thinking, full-width forms as ASCII, in small letters."""
    return unicodedata.normalize("NFKC", without_thoughts(body)).casefold()


def _number(digits: str, *words: str) -> Callable[[str], bool]:
    """Whether the body says this number, in digits that are not part of another number, or in words."""
    return _says("|".join([rf"(?<!\d)(?<!\d[.,]){digits}(?!\d)(?![.,][1-9])", *words]))


GENERAL = (
    SanityQuestion(
        "en-sum", "en", "What is 17 plus 25? Answer with the number only.", "42", _number("42", "forty.?two")
    ),
    SanityQuestion("en-capital", "en", "What is the capital of France? Answer with one word.", "Paris", _says("paris")),
    SanityQuestion(
        "en-month", "en", "Which month comes right after March? Answer with one word.", "April", _says("april")
    ),
    SanityQuestion("en-format", "en", "Answer only with the word banana.", "banana", _says_only("banana")),
    SanityQuestion(
        "de-week", "de", "Wie viele Tage hat eine Woche? Antworte nur mit der Zahl.", "7", _number("7", "sieben")
    ),
    SanityQuestion(
        "de-opposite", "de", "Was ist das Gegenteil von „heiß“? Antworte mit einem Wort.", "kalt", _says("kalt|kälte")
    ),
    SanityQuestion("ko-product", "ko", "8 곱하기 7은 얼마입니까? 숫자로만 답하세요.", "56", _number("56", "오십 ?육")),
    SanityQuestion(
        "ko-capital", "ko", "대한민국의 수도는 어디입니까? 한 단어로 답하세요.", "서울", _says("서울|seoul")
    ),
    SanityQuestion("zh-year", "zh", "一年有几个月?请只用数字回答。", "12", _number("12", "十二")),
    SanityQuestion("zh-format", "zh", "请只回答“苹果”这两个字。不要说别的。", "苹果", _says_only("苹果")),
)
"""A set of our own, of a kind that every model of the last years answers without thinking."""

CONTINUED = (
    SanityQuestion("continue-en-capital", "en", "The capital of France is", "Paris", _says("paris")),
    SanityQuestion("continue-en-days", "en", "Monday, Tuesday, Wednesday,", "Thursday", _says("thursday")),
    SanityQuestion("continue-en-count", "en", "One, two, three, four,", "five", _number("5", "five")),
    SanityQuestion("continue-en-opposite", "en", "The opposite of hot is", "cold", _says("cold")),
    SanityQuestion("continue-de-capital", "de", "Die Hauptstadt von Deutschland ist", "Berlin", _says("berlin")),
    SanityQuestion("continue-de-months", "de", "Januar, Februar, März,", "April", _says("april")),
    SanityQuestion("continue-ko-capital", "ko", "대한민국의 수도는", "서울", _says("서울|seoul")),
    SanityQuestion("continue-ko-days", "ko", "월요일, 화요일, 수요일,", "목요일", _says("목요일")),
    SanityQuestion("continue-zh-capital", "zh", "中国的首都是", "北京", _says("北京")),
    SanityQuestion("continue-zh-count", "zh", "一、二、三、四、", "五", _says("五")),
)
"""For base models: the answer is among the first words of what they write."""
