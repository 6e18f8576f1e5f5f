"""The program in an answer: the longest block of Python that is ended."""

from __future__ import annotations

from tasks.sandbox.check import program_of


def test_the_longest_block_of_python_is_the_program() -> None:
    answer = "First:\n```python\nx = 1\n```\nThen:\n```py\nx = 1\nprint(x)\n```\nRun it:\n```\npython x.py\n```\n"
    assert program_of(answer) == "x = 1\nprint(x)\n"


def test_blocks_of_other_languages_are_none() -> None:
    assert program_of("```json\n{}\n```\n```bash\nls -la /\n```\n") is None


def test_of_equally_long_blocks_the_last_counts() -> None:
    assert program_of("```python\na = 1\n```\nNo, better:\n```python\na = 2\n```\n") == "a = 2\n"


def test_a_block_that_was_cut_off_is_no_program() -> None:
    assert program_of("```python\nprint(1)\n") is None
    assert program_of("```python\nprint(1)\n```\n```python\nprint(123456789)\n") == "print(1)\n"


def test_text_without_a_block_is_no_program() -> None:
    assert program_of("print(1)") is None and program_of("") is None and program_of("```python\n\n```\n") is None


def test_a_longer_fence_may_hold_a_shorter_one() -> None:
    assert program_of("````python\nprint('''\n```\n''')\n````\n") == "print('''\n```\n''')\n"


def test_tildes_and_marks_with_more_behind_them_are_fences_too() -> None:
    assert program_of("~~~ python title=x\nprint(1)\n~~~\n") == "print(1)\n"
    assert program_of("``` Python3\nprint(1)\n```") == "print(1)\n"
