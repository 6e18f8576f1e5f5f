"""The hidden sentence, the question for it, and how its answer is read."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from tasks.prompts import prompt_seed

CITIES = (
    "Lisbon|Oslo|Quito|Nairobi|Kyoto|Tallinn|Valencia|Montreal|Cardiff|Lima|Hanoi|Zagreb|Perth|Geneva|Tunis|Santiago|"
    "Krakow|Boston|Dakar|Athens|Riga|Havana|Bergen|Seville"
).split("|")

_THOUGHT = re.compile(r"<think>.*?(?:</think>|$)", re.DOTALL)
_GROUPED = r"\d{1,3}(?:[,.' _\u00a0\u202f]\d{3})+(?!\d)"
_NUMBER = re.compile(rf"{_GROUPED}|\d+")


class Needle(NamedTuple):
    """A city and its number of seven digits."""

    city: str
    number: str

    @property
    def sentence(self) -> str:
        """What is hidden."""
        return f"The secret number of {self.city} is {self.number}."

    @property
    def question(self) -> str:
        """What is asked behind the text."""
        return (
            f"What is the secret number of {self.city} that is mentioned in the text above? "
            "End your answer with that number alone."
        )


def needle_of(*place: int) -> Needle:
    """The needle of one place (length, depth, seed): no two places share a number, except by chance."""
    draw = random.Random(prompt_seed("needle", *place))
    return Needle(draw.choice(CITIES), str(draw.randrange(1_000_000, 10_000_000)))


def last_number(body: str) -> str | None:
    """Extractor `exact`: digits of the last number in the body, thoughts removed; `4,829,173` is one number."""
    found = _NUMBER.findall(_THOUGHT.sub("", body))
    return re.sub(r"\D", "", found[-1]) if found else None
