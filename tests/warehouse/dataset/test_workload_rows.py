"""Workloads in the dataset and on the page: seconds, rates, speedups over visits, and programs that are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum

import pytest

from configs.steps.prompts import PromptsStep, condition_name
from tasks.steps.prompts import MODE
from tests.warehouse.synthetic import StepWriter, only
from tests.warehouse.visited import mirrored_pair, view_of
from warehouse.dataset.build import Consolidated, consolidate
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import Store
from warehouse.ledger.timed_tables import PROMPT_REQUESTS, PROMPT_WINDOWS
from warehouse.report.answer import answers
from warehouse.report.display.figures import Row
from warehouse.report.display.view import View
from warehouse.report.steps.prompts import workload_section
from warehouse.report.steps.throughput import acceptance_section

CODE = {"name": "code", "language": "Python", "prompt": "p", "max_tokens": 60, "check": {"cases": [{"stdout": ""}]}}
KOREAN = {"name": "ko", "language": "Korean", "prompt": "p", "max_tokens": 50}
SPEC = PromptsStep.model_validate(
    {"step": "prompts", "concurrencies": [1, 2], "repeats": 3, "workloads": [CODE, KOREAN]}
)
TOKENS = 50
CHARS = {"code": 200, "ko": 75}
NOISE = (0.99, 1.0, 1.01)

SLOW = {"code": 0.010, "ko": 0.010}
FAST = {"code": 0.004, "ko": 0.008}
"""Seconds of a token."""


def shape(workload: str, concurrency: int, repeat: int) -> Row:
    language = {"code": "Python", "ko": "Korean"}[workload]
    return {
        "condition": condition_name(workload, concurrency), "mode": MODE, "concurrency": concurrency,
        "output_tokens": 60, "workload": workload, "language": language, "repeat": repeat,
    }  # fmt: skip


def answer(workload: str, concurrency: int, repeat: int, number: int, wall_s: float, program: str | None) -> Row:
    reasons = {"wrong": "case 1: printed '1', right is '2'", "correct": "all of 1 cases", "not_run": "no sandbox here"}
    return shape(workload, concurrency, repeat) | {
        "number": number, "sent_s": 0.0, "wall_s": wall_s * (1 + number / 10), "prompt_tokens": 20,
        "text": f"a {program} program", "completion_tokens": TOKENS,
        "finish_reason": "length" if workload == "ko" else "stop",
        "chars": CHARS[workload], "program": program, "program_reason": reasons.get(program or ""),
    }  # fmt: skip


def window(answers: Sequence[Row], accepted: float) -> Row:
    first, number = answers[0], len(answers)
    tokens = number * TOKENS
    kept = round(tokens * accepted)
    positions = [tokens - kept, 2 * kept - tokens]
    counted = {"engine_drafts": tokens - kept, "engine_accepted_tokens": kept, "engine_accepted_by_position": positions}
    drafted = counted if accepted else {}
    return {name: first[name] for name in shape("ko", 1, 0)} | {
        "requests": number, "failed": 0, "tries": 1, "wall_s": max(each["wall_s"] for each in answers),
        "prompt_tokens": 20 * number, "completion_tokens": tokens, "chars": sum(each["chars"] for each in answers),
        "engine_generation_tokens": tokens, "engine_prefix_hits": 0, "engine_preemptions": 0, **drafted,
    }  # fmt: skip


def visit(
    ledger: Ledger, key: str, name: str, token_s: dict[str, float], accepted: float, programs: Sequence[str]
) -> None:
    step = StepWriter(ledger, key, name)
    step.provenance(machine="node-1 card-1")
    for workload in token_s:
        for concurrency in SPEC.concurrencies:
            for repeat, noise in enumerate(NOISE):
                wall_s = token_s[workload] * noise * TOKENS
                answers = [
                    answer(workload, concurrency, repeat, number, wall_s,
                           programs[(repeat + number) % len(programs)] if workload == "code" else None)
                    for number in range(concurrency)
                ]  # fmt: skip
                step.write(PROMPT_REQUESTS, answers)
                step.write(PROMPT_WINDOWS, [window(answers, accepted)])
            step.judge((condition_name(workload, concurrency), MODE, "ok", [], []))
    step.commit()


def build(local: Store, mtp_programs: Sequence[str] = ("correct", "wrong")) -> Consolidated:
    ledger, ar, mtp = mirrored_pair(local, SPEC)
    slower = {name: 1.01 * each for name, each in FAST.items()}
    visit(ledger, ar, "prompts", SLOW, 0.0, ["correct"])
    visit(ledger, mtp, "prompts", FAST, 0.6, mtp_programs)
    visit(ledger, mtp, "prompts@2", slower, 0.6, mtp_programs)
    visit(ledger, ar, "prompts@2", {name: 1.005 * each for name, each in SLOW.items()}, 0.0, ["correct"])
    return consolidate(local, ["r1"])


@pytest.fixture
def built(local: Store) -> Consolidated:
    return build(local)


def test_a_workload_has_a_row_at_each_concurrency_with_its_seconds_and_rates(built: Consolidated) -> None:
    assert len(built.results) == 2 * 4
    row = only(built.results, technique="ar", condition="code c=1")
    assert row["tok_s"] == pytest.approx(100, rel=0.01) and row["chars_s"] == pytest.approx(400, rel=0.01)
    assert row["answer_s"] == pytest.approx(0.5, rel=0.01)
    assert (row["mode"], row["concurrency"], row["visits"], row["repeats"]) == ("natural", 1, 2, 6)
    two = only(built.results, technique="ar", condition="code c=2")
    assert two["tok_s"] == pytest.approx(2 * 100 / 1.1, rel=0.01), "the clock stops with the last of both"
    assert two["answer_s"] == pytest.approx(0.525, rel=0.02), "the median of both, over all repeats"


def test_languages_are_told_and_cut_off_answers_counted(built: Consolidated) -> None:
    korean = only(built.results, technique="mtp", condition="ko c=2")
    assert (korean["language"], korean["truncated"], korean["blank"]) == ("Korean", 12, 0)
    assert korean["answer_tokens"] == TOKENS, "not the cap"
    code = only(built.results, technique="mtp", condition="code c=2")
    assert (code["language"], code["truncated"]) == ("Python", 0)
    per_token = [row["chars_s"] / row["tok_s"] for row in (korean, code)]
    assert per_token == pytest.approx([1.5, 4], rel=0.001)


def test_speedups_are_by_workload_over_visits(built: Consolidated) -> None:
    code, korean = (only(built.results, technique="mtp", condition=name) for name in ("code c=1", "ko c=1"))
    assert code["speedup"] == pytest.approx(2.5, rel=0.02) and korean["speedup"] == pytest.approx(1.25, rel=0.02)
    assert code["speedup_lo"] < code["speedup"] < code["speedup_hi"]
    claims = {pair["condition"]: pair["conclusion"] for pair in built.pairs if pair["kind"] == "speed"}
    assert set(claims) == {"code c=1", "code c=2", "ko c=1", "ko c=2"} and claims["code c=1"] == "faster"
    assert code["acceptance_length"] == pytest.approx(1 + 0.6 / 0.4)
    assert code["acceptance_by_position"] == pytest.approx([1.0, 0.5])


def test_a_wrong_program_leaves_its_row_ok_and_is_told(built: Consolidated) -> None:
    row = only(built.results, technique="mtp", condition="code c=1")
    assert (row["programs"], row["programs_correct"]) == (6, pytest.approx(4 / 6))
    assert (row["verdict"], row["reasons"]) == ("ok", [])
    assert "program wrong: case 1: printed '1', right is '2'" in row["details"]
    right = only(built.results, technique="ar", condition="code c=2")
    assert (right["programs"], right["programs_correct"]) == (12, 1.0)
    assert (row["programs_distinct"], right["programs_distinct"]) == (2, 1), "twelve copies are one greedy answer"
    none = only(built.results, technique="ar", condition="ko c=1")
    assert (none["programs"], none["programs_correct"]) == (None, None)


def test_programs_that_nobody_could_run_are_no_share_of_anything(local: Store) -> None:
    row = only(build(local, ["not_run"]).results, technique="mtp", condition="code c=1")
    assert (row["programs"], row["programs_correct"], row["programs_distinct"]) == (0, None, None)
    assert row["details"] == ["program not_run: no sandbox here"]


def test_seconds_of_the_steps_are_shared_among_its_rows(built: Consolidated) -> None:
    assert fsum(row["gpu_s"] for row in built.results if row["technique"] == "ar") == pytest.approx(72)


def test_the_page_has_bars_per_load_and_fast_and_correct_in_one_row(built: Consolidated) -> None:
    page = workload_section(view_of(built))
    assert page is not None
    assert "Speedup by workload, 1 in flight" in page and "Speedup by workload, 2 in flight" in page
    assert "code: mtp K=4 2.49" in page
    assert ">4 of 6, 2 answers</span>" in page and ">12 of 12, one answer</span>" in page and "100% / 50%" in page
    assert "copies of one prompt are sent together" in page


def test_no_single_workload_is_the_headline(built: Consolidated) -> None:
    view = view_of(built)
    [said] = answers(view)
    assert said.verdict == "By workload: see Workloads." and "code" not in said.evidence
    assert "Speedup against tokens per step" not in acceptance_section(view)
    one = [row for row in view.rows if row["condition"].startswith("code ")]
    [said] = answers(replace(view, rows=one))
    assert "code c=1" in said.verdict, "where there is but one, it is the headline"


def test_where_nothing_else_was_timed_the_rates_are_those_of_workloads(built: Consolidated) -> None:
    view = view_of(built)
    assert {row["condition"] for row in view.rates} == {"code c=1", "code c=2", "ko c=1", "ko c=2"}
    timed = dict(view.rows[0]) | {"step": "throughput", "condition": "short c=1", "mode": "fixed"}
    assert [row["condition"] for row in View([*view.rows, timed], [], [], 0).rates] == ["short c=1"]
    load = dict(view.rows[0]) | {"step": "load", "condition": "load c=1"}
    assert [row["condition"] for row in View([*view.rows, load], [], [], 0).rates] == ["load c=1"]
