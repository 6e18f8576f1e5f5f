"""Prompts: as long as asked, as varied as real prose, the same on every node; and a load's, by category and in turn."""

import asyncio
import json
import re
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from configs.errors import SpecsweepError
from configs.evals.records import DatasetUnavailable
from configs.prompt_suites import CATEGORIES, PLACEHOLDER
from configs.step import PROMPT_KINDS
from configs.steps.load import LoadStep
from configs.steps.throughput import PREFILL_TRIES
from flows.plans import record_run
from tasks import prompts
from tasks.guards.text import WORD_RUN, repeated_share
from tasks.guards.tokens import prompt_length
from tasks.prompt_suites.suite import PromptSuite, prompt_suite
from tests.fake_hub import COMMIT, FakeHub
from tests.fake_run import FakeRun
from tests.tasks.evals.graded import jsonl

SUITE = """
name: fake-suite
steps:
  - {step: smoke, items: 1}
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 64, output_tokens: 32, repeats: 2, requests: 2}
      - {name: 8k c=1, context_tokens: 8000, output_tokens: 512, repeats: 1, requests: 1, warmup: 0}
  - {step: parity, prompts: prose, n_prompts: 3, context_tokens: 64, output_tokens: 32}
"""

NEEDLE = "  - {step: needle, context_tokens: [1024], depths_percent: [50], max_tokens: 64, answer_tokens: 16}\n"


class FakeTokenizer:
    """One token per digit and per mark, words in pieces of so many letters, and a chat template of 11."""

    def __init__(self, letters: int) -> None:
        self.letters = letters
        self.asked = 0

    async def count(self, prompt: prompts.Prompt) -> int:
        self.asked += 1
        return self.tokens(prompt.text)

    def tokens(self, text: str) -> int:
        return 11 + len(re.findall(rf"\d|[^\W\d]{{1,{self.letters}}}|[^\w\s]", text))


async def prose() -> tuple[str, ...]:
    return prompts.paragraphs_here()


def prompt_of(kind: str, seed: int, tokens: int, tokenizer: FakeTokenizer | None = None) -> str:
    return asyncio.run(prompts.build_prompt(kind, seed, tokens, 128, prose, (tokenizer or FakeTokenizer(5)).count)).text


@pytest.mark.parametrize(("tokens", "letters"), [(64, 3), (64, 30), (1000, 2), (8000, 2), (8000, 5), (40_000, 2)])
def test_prose_is_as_long_as_asked_chat_template_included(tokens: int, letters: int) -> None:
    tokenizer = FakeTokenizer(letters)
    seeds = [prompts.prompt_seed("8k c=1", "fixed-0", index) for index in range(1 if tokens > 8000 else 5)]
    sent = [tokenizer.tokens(prompt_of("prose", seed, tokens, tokenizer)) for seed in seeds]
    assert prompt_length(tokens, sent) is None
    assert max(sent) <= tokens, "max_model_len is planned for no more"
    if tokens == 64:
        assert set(sent) == {64}, "1 % of 64 is no token at all"
    assert tokenizer.asked <= 10 * len(seeds)


def test_a_request_that_is_longer_than_asked_is_sent_and_said() -> None:
    tokenizer = FakeTokenizer(1)
    tokens = tokenizer.tokens(prompt_of("prose", 1, 64, tokenizer))
    assert tokens > 64
    finding = prompt_length(64, [64, tokens])
    assert finding is not None and finding.severity == "suspect"
    assert finding.sentence == f"1 of 2 prompts have not 64 tokens within 1% (e.g. {tokens})"


@pytest.mark.slow(6)
def test_a_context_of_just_prompt_and_output_holds_what_is_sent(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE, max_model_len=8512)
    run.measured(node_python, FAKE_ENGINE_DIGITS="1")
    requests, windows = run.rows("throughput", "requests"), run.rows("throughput", "windows")
    for asked in (64, 8000):
        sent = [row["prompt_tokens"] for row in requests if row["context_tokens"] == asked]
        assert sent and prompt_length(asked, sent) is None
        assert sum(sent) == sum(row["prompt_tokens"] for row in windows if row["context_tokens"] == asked)
    sent_prompts = dict.fromkeys(run.prompts_sent())
    first = next(row for row in requests if row["request_id"].startswith("8k c=1/fixed-"))
    _, window, index = first["request_id"].split("/")  # a busy machine measures it again, as `fixed-0-try-2`
    seed = prompts.prompt_seed("8k c=1", window, int(index))
    again = prompts.prompt_again("prose", seed, 8000, 512, prompts.paragraphs_here(), first["prompt_chars"])
    assert again.text in sent_prompts, "what was sent can be made again from its row"


def test_an_engine_that_counts_no_tokens_is_named(tmp_path: Path, node_python: Path) -> None:
    code, said = (run := FakeRun(tmp_path, suite=SUITE, max_model_len=8512)).finish(node_python, "no_tokenize")
    assert code == 1
    assert "/tokenize of http://127.0.0.1" in said and "HTTP 404" in said
    assert "serve with one that has it" in run.attempts()[0].reason


@pytest.mark.parametrize("index", range(4))
def test_prose_repeats_itself_no_more_than_english_does(index: int) -> None:
    text = prompt_of("prose", prompts.prompt_seed("8k c=1", "fixed-0", index), 8000)
    share = repeated_share(text.split(), WORD_RUN)
    assert share is not None and share < 0.10
    assert looked_up(text.split()) < 0.1, "sentences from a few patterns gave away 45 % of their words"


def looked_up(said: list[str]) -> float:
    """Share of the words that prompt lookup hits: what followed when the two words before stood together last."""
    last: dict[tuple[str, str], str] = {}
    right = 0
    for pair, word in zip(pairwise(said), said[2:], strict=False):
        right += last.get(pair) == word
        last[pair] = word
    return right / len(said)


@pytest.mark.parametrize("kind", ["prose", "listing"])
def test_no_two_prompts_begin_alike(kind: str) -> None:
    texts = [prompt_of(kind, prompts.prompt_seed("short c=1", "fixed-0", index), 192) for index in range(100)]
    beginnings = Counter(" ".join(text.split()[:16]) for text in texts)
    assert set(beginnings.values()) == {1}, "a block of the prefix cache has 16 tokens"


@pytest.mark.slow(14)
def test_nodes_with_another_python_send_the_same_prompts(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, "ar mtp", suite=SUITE + NEEDLE, max_model_len=8512)
    record_run(run.ledger, run.ledger.plan())
    other = tmp_path / "other" / "pydoc_data"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    (other / "topics.py").write_text(f"topics = {json.dumps({'x': 'Quite another prose of another language ' * 9})}")
    first, second = run.cell(0), run.cell(1)
    for node, path in ((first, ""), (second, f"{other.parent}:")):
        node.measured(node_python, PYTHONPATH=f"{path}{run.env('honest')['PYTHONPATH']}")
    alone = set(first.prompts_sent()) ^ set(second.prompts_sent())
    assert len(alone) <= sent_again(first) + sent_again(second)


def sent_again(node: FakeRun) -> int:
    """Prompts of windows that were measured again, because the client was starved: they have prompts of their own."""
    return sum(
        (row["tries"] - 1) * (row["requests"] + (PREFILL_TRIES * row["concurrency"] if row["mode"] == "stream" else 0))
        for row in node.rows("throughput", "windows")
    )


def test_the_runs_copy_of_the_prose_is_written_once(tmp_path: Path) -> None:
    ledger = FakeRun(tmp_path).ledger
    assert ledger.prompts(prompts.PROSE_KEPT_AS) is None
    ledger.write_prompts(prompts.PROSE_KEPT_AS, prompts.prose_to_json(["first"]))
    record_run(ledger, ledger.plan())
    kept = ledger.prompts(prompts.PROSE_KEPT_AS)
    assert kept is not None and prompts.prose_from_json(kept) == ("first",)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"[1]", b'[" "]'])
def test_a_broken_copy_is_one_line(data: bytes) -> None:
    with pytest.raises(SpecsweepError, match=r"prompts/prose\.json .* start a new run"):
        prompts.prose_from_json(data)


def test_no_paragraph_comes_twice_before_all_have_come() -> None:
    paragraphs = prompts.prose_from_json(prompts.prose_to_json(prompts.paragraphs_here()))
    assert paragraphs == prompts.paragraphs_here()
    length = sum(len(paragraph.split()) for paragraph in paragraphs)
    assert length > 30_000
    once = "".join(islice(prompts.words_of(paragraphs, 7), length)).split("\n\n")[:-1]
    assert sorted(once) == sorted(paragraphs)
    assert len(list(islice(prompts.words_of(paragraphs, 7), 2 * length))) == 2 * length, "then they come again"


def test_a_suite_may_name_every_kind_that_is_made_and_no_other() -> None:
    assert {*PROMPT_KINDS} == {prompts.PROSE, *prompts.MADE_OF_WORDS}
    for kind in PROMPT_KINDS:
        assert prompt_of(kind, 7, 400) == prompt_of(kind, 7, 400) != prompt_of(kind, 8, 400)


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
