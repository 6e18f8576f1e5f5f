"""How many answers the engine's cache carries, read off its own page."""

from __future__ import annotations

import pytest

from tasks.evals.progress import UNKNOWN_AT_ONCE, at_once, kv_tokens
from tests.tasks.evals.tape_case import cell, spec

STEP = spec(max_tokens=32768)
LONGEST = 32768 + STEP.suite.longest_prompt_tokens


def page(engine: int = 0, **labels: object) -> str:
    said = ",".join(f'{name}="{value}"' for name, value in {"cache_dtype": "auto", "engine": engine, **labels}.items())
    return f"# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{{said}}} 1.0\n"


BLOCKS = {"num_gpu_blocks": 1000, "block_size": 16}
LARGE = page(kv_cache_size_tokens=10**9)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (page(**BLOCKS), 16000),
        (page(kv_cache_size_tokens=None, **BLOCKS), 16000),
        (page(0, kv_cache_size_tokens=500) + page(1, kv_cache_size_tokens=500), 1000),
        (page(0, **BLOCKS) + page(1, **BLOCKS), 16000),
    ],
    ids=["older", "none-said", "two-engines", "summed-already"],
)
def test_the_caches_tokens_are_each_engines_own_or_the_blocks_of_all(text: str, tokens: int) -> None:
    assert kv_tokens(text) == tokens


@pytest.mark.parametrize(
    ("max_num_seqs", "text", "number"),
    [
        (None, page(kv_cache_size_tokens=10 * LONGEST + 5, num_gpu_blocks=9, block_size=16), 10),
        (None, page(kv_cache_size_tokens=100), 1),
        (12, LARGE, 12),
        (4096, LARGE, 256),
        (12, "", 12),
        (None, page(num_gpu_blocks=None), UNKNOWN_AT_ONCE),
    ],
    ids=["as-many-as-fit", "too-small-for-one", "the-cells-limit", "ours", "nothing-said", "nor-a-limit"],
)
def test_so_many_are_asked_at_a_time(max_num_seqs: int | None, text: str, number: int) -> None:
    assert at_once(STEP, cell(max_num_seqs=max_num_seqs), text)[0] == number


def test_the_step_has_the_last_word() -> None:
    assert at_once(spec(concurrency=3), cell(), LARGE) == (3, "3 at a time, as the step says")
