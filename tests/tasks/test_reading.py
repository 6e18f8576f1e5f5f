"""Reading what engines write: metrics pages and answer letters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.engine.command import EngineCommand
from tasks.engine.server import Engine
from tasks.grading import first_letter, last_letter
from tasks.meters import parse
from tasks.steps.eval_tiny import drawn

PAGE = """# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny"} 512.0
vllm:generation_tokens_total{engine="1",model_name="tiny"} 8.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 2.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="tiny"} 1.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 200.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 150.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="1"} 60.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="0"} 90.0
"""


def test_counters_are_summed_over_engines_and_labels() -> None:
    counters = parse(PAGE)
    assert counters.generation_tokens == 520
    assert counters.requests_finished == 3
    assert counters.accepted_by_position == (90, 60)


def test_a_counter_the_server_lacks_is_null_not_zero() -> None:
    counters = parse("vllm:generation_tokens_total 5\n")
    assert counters.drafts is None
    assert counters.since(counters).drafts is None
    assert counters.since(counters).generation_tokens == 0


def test_deltas_are_of_the_work_between() -> None:
    later = parse(PAGE.replace("150.0", "170.0").replace("} 90.0", "} 110.0"))
    counted = later.since(parse(PAGE))
    assert counted.accepted_tokens == 20
    assert counted.accepted_by_position == (20, 0)


@pytest.mark.parametrize(
    ("body", "letter"),
    [
        ("The answer is (C)", "C"),
        ("(A) is wrong, so (B)", "B"),
        ("<think>(A)? no, (D)</think>The answer is (B)", "B"),
        ("<think>cut off in the middle (A)", None),
        ("no letter at all", None),
        ("", None),
    ],
)
def test_the_last_letter_of_the_body_is_the_answer(body: str, letter: str | None) -> None:
    assert last_letter(body) == letter


def test_the_first_letter_falls_into_the_trap_of_the_thinking() -> None:
    assert first_letter("maybe (A) ? fox gold (C)", "The answer is (C)") == "A"


def test_an_evaluation_of_one_kind_asks_only_that_kind() -> None:
    lookups = drawn(48, 0, "lookup")
    assert {question.kind for question in lookups} == {"lookup"}
    assert len({question.item_id for question in lookups}) == 48
    assert lookups == drawn(48, 0, "lookup")
    assert lookups[:24] == [question for question in drawn(48, 0, None) if question.kind == "lookup"], "paired items"


ENGINE_LOG = """(EngineCore pid=7) ERROR 11-20 21:23:00 [core.py:1] Worker proc died, shutting down executor.
(APIServer pid=5) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.
(APIServer pid=5) INFO:     127.0.0.1:41000 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error
INFO:     Finished server process [5]
"""


def test_the_cause_of_an_engines_death_is_its_last_exception(tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_text(ENGINE_LOG)
    engine = Engine(EngineCommand(("vllm",), {}, None, None), 1, tmp_path, 1)
    assert engine.cause() == "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
