"""Which prompts a load step sends: by category, in turn, from each of its sources; what must not be copied is named."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from configs.evals.records import DatasetUnavailable
from configs.prompt_suites import CATEGORIES, PLACEHOLDER
from configs.steps.load import LoadStep
from tasks.prompt_suites.suite import PromptSuite, prompt_suite
from tests.fake_hub import COMMIT, FakeHub
from tests.tasks.evals.graded import jsonl


def suite(tmp_path: Path, **fields: Any) -> PromptSuite:
    return prompt_suite(LoadStep.model_validate({"step": "load", **fields}), tmp_path / "cache", print)


def of_file(tmp_path: Path, *records: dict[str, Any], **fields: Any) -> PromptSuite:
    return suite(tmp_path, dataset=str(jsonl(tmp_path / "mine.jsonl", records)), **fields)


def asked(category: str, text: str) -> dict[str, Any]:
    return {"category": category, "turns": [text, "a second turn"]}


@pytest.mark.parametrize(("dataset", "each"), [("ours", 6), ("twin", 8)])
def test_our_own_suites_have_the_categories_of_speed_bench(tmp_path: Path, dataset: str, each: int) -> None:
    found = suite(tmp_path, dataset=dataset)
    assert Counter(prompt.category for prompt in found.prompts) == dict.fromkeys(CATEGORIES, each)
    assert len({prompt.prompt_id for prompt in found.prompts}) == len(found.prompts)
    assert suite(tmp_path, dataset=dataset) == found


def test_categories_come_in_turn_and_are_dealt_into_repeats(tmp_path: Path) -> None:
    found = of_file(tmp_path, *(asked(name, f"{name} {number}") for name in ("b", "a") for number in range(6)))
    assert [prompt.category for prompt in found.prompts] == ["a", "b"] * 6
    assert [prompt.repeat for prompt in found.prompts if prompt.category == "a"] == [0, 1, 2, 3, 0, 1]
    assert found.prompts[0].prompt.text == "a 0", "the first turn"


def test_the_first_so_many_of_each_category_are_asked(tmp_path: Path) -> None:
    found = suite(tmp_path, dataset="ours", requests_per_category=2)
    assert len(found.prompts) == 22 and found.prompts == suite(tmp_path, dataset="ours").prompts[:22]
    with pytest.raises(DatasetUnavailable, match=r"requests_per_category: 7.*'ours' has 6.*accepted: 1 to 6"):
        suite(tmp_path, dataset="ours", requests_per_category=7)


def test_placeholders_are_named_with_what_fills_them_in(tmp_path: Path) -> None:
    hole = asked("coding", f"{PLACEHOLDER} USING SPECDEC_BENCH")
    whole = [asked(name, f"{name} {number}") for name in ("coding", "math") for number in range(2)]
    with pytest.raises(DatasetUnavailable) as caught:
        of_file(tmp_path, hole, *whole)
    said = str(caught.value)
    assert "1 of 5 prompts" in said and "(coding)" in said and "prepare_data.py" in said and "at most 2" in said
    assert len(of_file(tmp_path, hole, *whole, requests_per_category=2).prompts) == 4


@pytest.mark.parametrize(
    "record", [{"turns": ["x"]}, {"category": "a"}, {"category": "a", "turns": []}, asked("a, b", "x")]
)
def test_a_record_without_category_or_turn_is_named_by_its_row(tmp_path: Path, record: dict[str, Any]) -> None:
    with pytest.raises(DatasetUnavailable, match=r"row 2 is no prompt with a category; accepted: a `category`"):
        of_file(tmp_path, asked("a", "x"), record)


def test_speed_bench_comes_from_the_hub_once_at_its_pinned_commit(hub: FakeHub, tmp_path: Path) -> None:
    records = [asked(category, f"{category} {number}") for category in CATEGORIES for number in range(3)]
    hub.put("nvidia/SPEED-Bench", "qualitative", "test", records)
    found = suite(tmp_path, dataset="speed-bench", requests_per_category=3)
    assert (len(found.prompts), found.revision) == (33, COMMIT)
    assert any("487aa718444e816458d1a0a52bfce7a454285cf4" in path for path in hub.asked)
    hub.refusal = (500, "")
    assert suite(tmp_path, dataset="speed-bench", requests_per_category=3) == found, "a second use needs no network"
