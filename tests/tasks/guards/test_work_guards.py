"""Was all of the work done, once, and by the engine: token ids, prompts that were cut, prompts that were remembered."""

from __future__ import annotations

import pytest

from tasks.guards.tokens import FEWEST_SEEN, cut_prompts, ids_mismatch, secretly_cached


def test_an_answer_with_other_token_ids_than_its_usage_says_is_rejected() -> None:
    whole, cut = {"completion_tokens": 64, "token_id_count": 64}, {"completion_tokens": 64, "token_id_count": 32}
    assert ids_mismatch([whole, whole]) is None
    found = ids_mismatch([whole, cut])
    assert found is not None and (found.reason, found.severity) == ("token_mismatch", "rejected")
    assert "1 of 2" in found.sentence and "32 ids where usage says 64 tokens" in found.sentence
    assert ids_mismatch([{"completion_tokens": 64}, cut | {"token_id_count": None}]) is None, "nobody asked"


@pytest.mark.parametrize(("read", "fires"), [(1000, False), (1010, False), (1011, True), (512, True), (2000, True)])
def test_a_prompt_is_read_as_long_as_it_is(read: int, fires: bool) -> None:
    row = {"prompt_tokens": read, "counted_prompt_tokens": 1000}
    found = cut_prompts([row | {"prompt_tokens": 1000}, row])
    assert (found is not None) == fires
    assert found is None or (found.reason, found.severity) == ("prompt_length", "suspect")
    assert found is None or f"1 of 2 prompts were read at another length than they have (e.g. {read}" in found.sentence
    assert cut_prompts([row | {"counted_prompt_tokens": None}]) is None


@pytest.mark.parametrize(
    ("now_ms", "fires"), [(120.0, False), (400.0, False), (60.0, False), (30.0, True), (8.0, True)]
)
def test_a_prompt_that_is_asked_again_takes_as_long(now_ms: float, fires: bool) -> None:
    found = secretly_cached([(120.0, now_ms)] * FEWEST_SEEN)
    assert (found is not None) == fires
    assert found is None or (found.reason, found.severity) == ("prefix_cache_hit", "suspect")
    assert secretly_cached([(120.0, now_ms)] * (FEWEST_SEEN - 1)) is None, "a few may have met a compiler"


def test_what_kept_most_prompts_waiting_is_no_cache() -> None:
    met = [(380.0, 37.0)] * (FEWEST_SEEN - 1) + [(38.0, 37.0)]
    assert secretly_cached(met) is None, "a compiler, or a busy machine"
