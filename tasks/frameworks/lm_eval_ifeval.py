"""lm-eval's checkers of IFEval: what they need is there, and their dice fall the same every time.

Runs inside the lm-eval environment.
"""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterable
from typing import Any

from tasks.frameworks.job import Item

WITH_PUNKT = frozenset({"length_constraints:number_sentences", "change_case:capital_word_frequency"})
"""Instructions whose checkers split sentences with nltk's punkt_tab; the other 23 never touch it."""

DOWNLOAD_S = 20.0
"""Longest silence while nltk tries to fetch punkt_tab on import: a node without a way out must not wait minutes."""


class MissingDependency(Exception):
    """The checkers lack a package or data that these items need."""


def ready(items: Iterable[Item]) -> None:
    """Import the checkers and see that all that these items need is there, before a GPU is kept waiting.

    Importing them downloads punkt_tab if it is missing. Where that fails, items that don't need it are still scored.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(DOWNLOAD_S)
    try:
        import langdetect
        import lm_eval.tasks.ifeval.instructions_registry as registry
        import nltk
    except ImportError as error:
        raise MissingDependency(f"IFEval's checkers need {error.name}: make the lm-eval environment anew") from error
    finally:
        socket.setdefaulttimeout(before)
    langdetect.DetectorFactory.seed = 0  # unseeded, the language of the same answer may be read differently
    wanted = {name for item in items for name in item.record["instruction_id_list"]}
    if unknown := sorted(wanted - set(registry.INSTRUCTION_DICT)):
        raise MissingDependency(f"lm-eval has no checker for {unknown[0]}: wrong value in instruction_id_list")
    if wanted & WITH_PUNKT and not _has_punkt(nltk):
        raise MissingDependency(
            f"IFEval's {min(wanted & WITH_PUNKT)} needs nltk's punkt_tab, which is not here and can't be downloaded: "
            "name a folder in NLTK_DATA that has tokenizers/punkt_tab"
        )


def _has_punkt(nltk: Any) -> bool:
    try:
        nltk.data.find("tokenizers/punkt_tab/english/")
    except LookupError:
        return False
    return True


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, Any]:
    """The stock scores of one answer.

    A few checkers roll dice (letter_frequency, if its letter is none of a-z); the item's id seeds them, so that the
    same answer gets the same score in every cell and whenever it is graded again.
    """
    from lm_eval.tasks.ifeval.utils import process_results as stock

    random.seed(doc["item_id"])
    scores: dict[str, Any] = stock(json.loads(doc["record"]), results)
    return scores
