"""Reading what engines write: metrics pages, answer letters and programs."""

import pytest

from tasks.meters import parse
from tasks.sandbox.run import program_of
from tasks.steps.eval_tiny import drawn, first_letter, last_letter

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


def test_counters_are_summed_over_engines_and_labels_and_deltas_are_of_the_work_between() -> None:
    counters = parse(PAGE)
    assert counters.generation_tokens == 520
    assert counters.requests_finished == 3
    assert counters.accepted_by_position == (90, 60)
    later = parse(PAGE.replace("150.0", "170.0").replace("} 90.0", "} 110.0"))
    counted = later.since(counters)
    assert counted.accepted_tokens == 20
    assert counted.accepted_by_position == (20, 0)


def test_a_counter_the_server_lacks_is_null_not_zero() -> None:
    counters = parse("vllm:generation_tokens_total 5\n")
    assert counters.drafts is None
    assert counters.since(counters).drafts is None
    assert counters.since(counters).generation_tokens == 0


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
    assert first_letter("maybe (A) ? fox gold (C)", "The answer is (C)") == "A", "the trap of the thinking"


def test_an_evaluation_of_one_kind_asks_only_that_kind() -> None:
    lookups = drawn(48, 0, "lookup")
    assert {question.kind for question in lookups} == {"lookup"}
    assert len({question.item_id for question in lookups}) == 48
    assert lookups == drawn(48, 0, "lookup")
    assert lookups[:24] == [question for question in drawn(48, 0, None) if question.kind == "lookup"], "paired items"


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("```python\nx = 1\n```\n```py\nx = 1\nprint(x)\n```\n```\npython x.py\n```\n", "x = 1\nprint(x)\n"),
        ("```json\n{}\n```\n```bash\nls -la /\n```\n", None),
        ("```python\na = 1\n```\nNo, better:\n```python\na = 2\n```\n", "a = 2\n"),
        ("```python\nprint(1)\n", None),
        ("```python\nprint(1)\n```\n```python\nprint(123456789)\n", "print(1)\n"),
        ("print(1)", None),
        ("", None),
        ("```python\n\n```\n", None),
        ("````python\nprint('''\n```\n''')\n````\n", "print('''\n```\n''')\n"),
        ("~~~ python title=x\nprint(1)\n~~~\n", "print(1)\n"),
        ("``` Python3\nprint(1)\n```", "print(1)\n"),
    ],
    ids=["longest", "other languages", "equally long", "cut off", "cut off behind one", "no block", "empty", "blank",
         "longer fence", "tildes", "capital"],
)  # fmt: skip
def test_the_longest_block_of_python_that_is_ended_is_the_program(answer: str, program: str | None) -> None:
    assert program_of(answer) == program
