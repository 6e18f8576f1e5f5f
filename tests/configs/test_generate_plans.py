"""What the transformers engine can't serve or time is said of its row, before anything starts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from configs.expand import expand
from configs.load import ConfigError, load_sweep

SWEEP = """\
name: mine
engine: transformers-cpu
gpu: cpu
suite: {suite}
serving: {{max_model_len: 2048{serving}}}
cells:
  - {{model: {model}, precision: {precision}, technique: {technique}}}
"""


def sweep(
    technique: str = "ar",
    suite: str = "transformers-tiny",
    serving: str = "",
    model: str = "tiny-gemma4",
    precision: str = "bf16",
) -> str:
    return SWEEP.format(technique=technique, suite=suite, serving=serving, model=model, precision=precision)


@pytest.mark.parametrize(
    "technique",
    [
        "ar",
        "draft_model, k: 4, draft: {family_member: draft}",
        "mtp, k: 4, draft: {family_member: mtp}",
        "prompt-lookup, k: 4",
    ],
)
def test_what_generate_can_serve_is_planned(write: Callable[..., str], technique: str) -> None:
    plan = expand(load_sweep(write(sweep(technique))))
    assert plan.cells[0].cell.engine.kind == "transformers"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"technique": "dflash, k: 7, draft: {family_member: dflash}"}, "'dflash' is not served by 'transformers-cpu'"),
        ({"technique": "mtp-embedded, k: 3"}, "accepted: mtp with a draft"),
        ({"technique": "suffix, k: 8"}, "accepted: techniques of method ar, draft_model, mtp, ngram"),
        ({"technique": "ngram, k: 4"}, "accepted: prompt-lookup, or another with prompt_lookup_min: 1"),
        ({"precision": "fp8"}, "'fp8' is made by vLLM while loading; accepted: the checkpoint's own, as bf16"),
        ({"model": "gemma-4-31b-shape"}, "accepted: real weights"),
        ({"serving": ", max_num_seqs: 8"}, "max_num_seqs is vLLM's"),
        ({"serving": ", prefix_cache: true"}, "prefix_cache is vLLM's"),
        ({"suite": "speed-bench-tiny"}, "step 'load' times 88 requests at once, and 'transformers-cpu' answers one"),
    ],
)
def test_what_it_cannot_is_refused_with_what_would_be_accepted(
    write: Callable[..., str], row: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml:") as refused:
        load_sweep(write(sweep(**row)))
    assert said in str(refused.value) and "accepted: " in str(refused.value)


def test_requests_may_queue_where_nothing_is_timed(write: Callable[..., str]) -> None:
    steps = {step.step for step in expand(load_sweep(write(sweep()))).cells[0].steps}
    assert "eval-tiny" in steps, "two at a time"
