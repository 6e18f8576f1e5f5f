"""How many answers the engine's cache carries, read off its own page."""

from __future__ import annotations

from tasks.evals.concurrency import UNKNOWN_AT_ONCE, at_once, kv_tokens
from tests.tasks.evals.tape_case import cell, spec

STEP = spec(max_tokens=32768)
LONGEST = 32768 + STEP.suite.longest_prompt_tokens


def page(engine: int = 0, **labels: object) -> str:
    said = ",".join(f'{name}="{value}"' for name, value in {"cache_dtype": "auto", "engine": engine, **labels}.items())
    return f"# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{{said}}} 1.0\n"


def test_the_cache_carries_as_many_as_fit_with_answers_of_full_length() -> None:
    text = page(kv_cache_size_tokens=10 * LONGEST + 5, num_gpu_blocks=9, block_size=16)
    number, said = at_once(STEP, cell(), text)
    assert number == 10
    assert (
        said
        == f"10 at a time: a KV cache of {10 * LONGEST + 5} tokens carries 10 answers of {LONGEST} tokens with"
        + (" their prompts")
    )


def test_an_older_engine_is_read_by_its_blocks() -> None:
    assert kv_tokens(page(num_gpu_blocks=1000, block_size=16)) == 16000
    assert kv_tokens(page(kv_cache_size_tokens=None, num_gpu_blocks=1000, block_size=16)) == 16000


def test_engines_that_share_the_work_add_up_but_their_blocks_are_summed_already() -> None:
    assert kv_tokens(page(0, kv_cache_size_tokens=500) + page(1, kv_cache_size_tokens=500)) == 1000
    both = page(0, num_gpu_blocks=1000, block_size=16) + page(1, num_gpu_blocks=1000, block_size=16)
    assert kv_tokens(both) == 16000


def test_a_cache_too_small_for_one_answer_still_gets_one() -> None:
    assert at_once(STEP, cell(), page(kv_cache_size_tokens=100))[0] == 1


def test_neither_the_engine_nor_the_tape_is_asked_for_more_than_it_takes() -> None:
    large = page(kv_cache_size_tokens=10**9)
    assert at_once(STEP, cell(max_num_seqs=12), large)[0] == 12
    assert at_once(STEP, cell(max_num_seqs=4096), large)[0] == 256


def test_the_step_has_the_last_word() -> None:
    assert at_once(spec(concurrency=3), cell(), page(kv_cache_size_tokens=10**9)) == (
        3,
        "3 at a time, as the step says",
    )


def test_an_engine_that_says_nothing_gets_its_limit_or_a_few() -> None:
    assert at_once(STEP, cell(max_num_seqs=12), "")[0] == 12
    assert at_once(STEP, cell(), page(num_gpu_blocks=None))[0] == UNKNOWN_AT_ONCE
