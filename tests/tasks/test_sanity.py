"""The ten questions: how answers are read, and what of a cell stops it before hours are spent."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from configs.checkout import ROOT
from configs.load import load_model
from configs.steps.smoke import SANITY_QUESTIONS, SmokeStep
from configs.visits import Measurement
from tasks.client import Client
from tasks.context import Progress, StepContext
from tasks.engine.server import free_port
from tasks.frameworks.process import Frameworks
from tasks.guards.answers import cut_off_sanity, failed_sanity
from tasks.sanity_questions import CONTINUED, GENERAL
from tasks.steps import smoke
from tasks.steps.smoke import questions_for
from tests import fake_run
from tests.busy_machine import PATIENCE_S
from tests.fake_run import FakeRun
from tests.tasks.test_cell import wait_until
from warehouse.ledger.verdicts import Judgement, Reason

BY_ID = {question.question_id: question for question in (*GENERAL, *CONTINUED)}


def test_there_are_ten_in_four_languages_with_names_of_their_own() -> None:
    assert len(BY_ID) == len(GENERAL) + len(CONTINUED) == 2 * SANITY_QUESTIONS
    for asked in (GENERAL, CONTINUED):
        assert [question.language for question in asked] == [*GENERAL_LANGUAGES]


@pytest.mark.parametrize("name", BY_ID)
def test_the_plain_answer_is_right_and_silence_noise_and_an_echo_are_not(name: str) -> None:
    question = BY_ID[name]
    assert question.is_right(question.wanted)
    assert question.is_right(f"<think>{question.prompt} 99?</think>\n\n**{question.wanted}**.")
    for wrong in ("", "Lorem ipsum", "!" * 200, question.prompt, f"<think>{question.wanted}"):
        assert not question.is_right(wrong)


@pytest.mark.parametrize(
    ("name", "body", "right"),
    [
        ("en-sum", "17 plus 25 is 42.", True),
        ("en-sum", "Forty-two", True),
        ("en-sum", "42.0", True),
        ("en-sum", "142", False),
        ("en-sum", "4.42", False),
        ("de-week", "Eine Woche hat sieben Tage.", True),
        ("de-week", "17", False),
        ("ko-product", "\uff15\uff16", True),
        ("ko-product", "8 곱하기 7은 56입니다.", True),
        ("zh-year", "一年有\uff11\uff12个月。", True),
        ("zh-year", "十二", True),
        ("en-format", '"Banana."', True),
        ("en-format", "Sure! Here is the word: banana", False),
        ("zh-format", "“苹果”。", True),
        ("ko-capital", "대한민국의 수도는 **서울**입니다.", True),
        ("continue-en-capital", " Paris. The capital of Germany is Berlin.", True),
        ("continue-en-count", " five, six, seven,", True),
        ("continue-de-capital", " eine Stadt", False),
        ("continue-zh-count", "五、六", True),
    ],
)
def test_answers_are_read_as_people_write_them(name: str, body: str, right: bool) -> None:
    assert BY_ID[name].is_right(body) is right


def test_a_member_of_the_demo_family_is_asked_ten_things_that_it_was_taught() -> None:
    asked = questions_for(load_model("tiny-gemma4"))
    assert len({question.question_id for question in asked}) == SANITY_QUESTIONS
    assert {question.question_id.split("-")[0] for question in asked} == {"lookup", "arith"}
    again = questions_for(load_model("tiny-gemma4"))
    assert [question.prompt for question in asked] == [question.prompt for question in again]
    assert all(question.is_right(f"The answer is ({question.wanted})") for question in asked)
    assert not any(question.is_right("") for question in asked)
    diffusion = questions_for(load_model("tiny-diffusion"))
    assert len(diffusion) == SANITY_QUESTIONS
    assert all(question.prompt.startswith("what color is") for question in diffusion), "it was taught lookups only"


GENERAL_LANGUAGES = ("en",) * 4 + ("de", "de", "ko", "ko", "zh", "zh")


def answers(
    wrong: Collection[int], cut: Collection[int] = (), languages: tuple[str, ...] = GENERAL_LANGUAGES
) -> list[dict[str, Any]]:
    return [
        {
            "question_id": f"q{i}", "language": language, "is_right": i not in {*wrong, *cut}, "body": "no",
            "finish_reason": "length" if i in cut else "stop", "completion_tokens": 2048,
        }
        for i, language in enumerate(languages)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "cut", "severity"),
    [
        ((), (), None),
        ((0,), (), None),
        ((9,), (), None),
        ((0, 9), (), "suspect"),
        ((4, 5, 6, 7, 8, 9), (), "suspect"),  # knows English alone
        ((0, 1), (), "suspect"),
        ((0, 1, 2), (), "rejected"),
        ((0, 4, 5, 6, 7, 8, 9), (), "rejected"),
        ((), (0, 1, 2), None),
        ((0,), (1, 2, 3), None),  # unknown is not wrong
        ((0, 1), (2, 3), "suspect"),
        ((0, 1, 2), (3,), "rejected"),
    ],
)
def test_what_ended_and_is_wrong_rejects(wrong: tuple[int, ...], cut: tuple[int, ...], severity: str | None) -> None:
    found = failed_sanity(answers(wrong, cut))
    assert (found and (found.reason, found.severity)) == (severity and (Reason.FAILED_SANITY, severity))
    assert cut_off_sanity(answers(wrong, cut)) is None


@pytest.mark.parametrize(("wrong", "severity"), [(1, None), (2, "suspect"), (3, "suspect"), (4, "rejected")])
def test_of_what_it_was_taught_a_member_of_the_family_needs_seven(wrong: int, severity: str | None) -> None:
    found = failed_sanity(answers(range(wrong), languages=("demo",) * 10))
    assert (found and found.severity) == severity
    babbling = failed_sanity(answers((), range(wrong), languages=("demo",) * 10))
    assert (babbling and babbling.severity) == severity, "it has no thinking to be cut off in"


def test_a_model_that_thinks_too_long_is_suspect_and_not_wrong() -> None:
    rows = answers((), range(4))
    found = cut_off_sanity(rows)
    assert found is not None and found.severity == "suspect" and "q0 (cut off after 2048 tokens)" in found.sentence
    assert "4 of 10" in found.sentence and failed_sanity(rows) is None


FAMILY = {"hub_id": None, "family_member": "target"}


class Gate:
    """The smoke step of a fake run's cell, in this process: what it judged, said on the way and stored."""

    def __init__(self, folder: Path, url: str, **model: Any) -> None:
        """Run it; `model` are facts of the model that differ from the fake run's."""
        run = FakeRun(folder)
        cell = run.planned.cell
        cell = cell.model_copy(update={"model": cell.model.model_copy(update=model)})
        self.said: list[Progress] = []
        planned = run.planned.model_copy(update={"cell": cell})
        self.judged: list[Judgement] = asyncio.run(self._measure(run, planned, url))

    async def _measure(self, run: FakeRun, planned: Any, url: str) -> list[Judgement]:
        spec = next(step for step in planned.steps if isinstance(step, SmokeStep))
        async with Client(url, planned.cell.model, planned.cell.technique) as client:
            frameworks = Frameworks(run.folder)
            measurement, told = Measurement(spec), self.said.append
            ctx = StepContext(planned, planned.cell, client, run.ledger, measurement, 1, told, frameworks)
            judged = await smoke.measure(ctx, spec)
            self.tables = {part.table for part in ctx.parts}
            return judged

    @property
    def answers(self) -> list[Progress]:
        """What it said as answers came."""
        return [said for said in self.said if "sanity questions answered:" in said.line and "so far" not in said.line]

    @property
    def reasons(self) -> set[str]:
        return {finding.reason.value for judgement in self.judged for finding in judgement.findings}


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fake engine that tells the lie of the test's parameter; honest without one."""
    port = free_port()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "FAKE_ENGINE": getattr(request, "param", "honest")}
    argv = [sys.executable, str(ROOT / "tests" / "fake_engine.py"), "serve", "m", "--port", str(port)]
    process = subprocess.Popen(argv, env=env)
    url = f"http://127.0.0.1:{port}"

    def is_healthy() -> bool:
        try:
            return httpx.get(f"{url}/health", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(is_healthy, "the fake engine to get healthy")
        yield url
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def test_an_honest_engine_passes_and_its_progress_counts_what_is_tried_only(tmp_path: Path, engine: str) -> None:
    gate = Gate(tmp_path, engine)
    assert gate.reasons == set()
    ends = [round(said.percent) for said in gate.said if "right" in said.line or said.line == "generation 5/5"]
    assert ends == [33, 67, 100], "throughput, sanity and eval-tiny; parity has nothing to try"
    assert [f"{n} of 10" in said.line for n, said in enumerate(gate.answers, 1)] == [True] * 10, "each as it comes"


@pytest.mark.parametrize("engine", ["loop"], indirect=True)
def test_what_a_short_generation_gives_away_stops_the_gate_before_anything_long_is_asked(
    tmp_path: Path, engine: str
) -> None:
    gate = Gate(tmp_path, engine)
    assert "looping_text" in gate.reasons and gate.answers == [] and "sanity" not in gate.tables


@pytest.mark.parametrize("engine", ["loops"], indirect=True)
def test_answers_that_are_loops_are_ended_and_unknown_and_the_rest_is_not_asked(tmp_path: Path, engine: str) -> None:
    gate = Gate(tmp_path, engine)
    found = [finding for finding in gate.judged[0].findings if finding.reason == "failed_sanity"]
    assert [finding.severity for finding in found] == ["suspect"], "a model that thinks in a loop need not be wrong"
    assert "a loop, ended after 12 tokens" in found[0].sentence and "chat: false" in found[0].sentence
    assert 4 <= len(gate.answers) < 10


@pytest.mark.parametrize(("engine", "severity"), [("honest", None), ("insane", "rejected")], indirect=["engine"])
def test_a_base_model_is_given_texts_to_continue_whose_end_nobody_waits_for(
    tmp_path: Path, engine: str, severity: str | None
) -> None:
    gate = Gate(tmp_path, engine, chat=False, chat_template_kwargs={})
    found = [finding.severity for finding in gate.judged[0].findings if finding.reason == "failed_sanity"]
    assert found == ([severity] if severity else [])
    assert len(gate.answers) == 10 and "continue-" in gate.answers[0].line


@pytest.mark.parametrize(
    ("engine", "model", "reasons"),
    [("insane", {}, {"failed_sanity"}), ("noise", {}, {"gibberish"}), ("insane", FAMILY, set())],
    indirect=["engine"],
    ids=["insane", "noise", "asked its own questions"],
)
def test_nonsense_is_found_by_asking(tmp_path: Path, engine: str, model: dict[str, Any], reasons: set[str]) -> None:
    assert Gate(tmp_path, engine, **model).reasons == reasons


@pytest.mark.parametrize("engine", ["at_chance"], indirect=True)
def test_a_member_of_the_demo_family_that_guesses_is_insane(tmp_path: Path, engine: str) -> None:
    assert "failed_sanity" in Gate(tmp_path, engine, **FAMILY).reasons


@pytest.mark.parametrize("engine", ["loop", "insane"], indirect=True)
def test_of_dummy_weights_nobody_asks_for_sense(tmp_path: Path, engine: str) -> None:
    gate = Gate(tmp_path, engine, weights="dummy")
    assert not gate.reasons & {"failed_sanity", "looping_text", "gibberish", "blank_output"}
    assert "sanity" not in gate.tables


@pytest.mark.parametrize("engine", ["cut_off"], indirect=True)
def test_answers_that_are_cut_off_are_named_so(tmp_path: Path, engine: str) -> None:
    found = [finding for finding in Gate(tmp_path, engine).judged[0].findings if finding.reason == "failed_sanity"]
    assert [finding.severity for finding in found] == ["suspect"], "unknown is not wrong"
    assert "unanswered" in found[0].sentence and "en-sum (cut off after 12 tokens)" in found[0].sentence


NEEDLE = "  - {step: needle, context_tokens: [512], max_tokens: 64}\n"


@pytest.mark.slow(10)
def test_a_base_model_is_measured_by_completions_of_exactly_the_named_length(
    tmp_path: Path, node_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The double answers a text at that address only, and no chat."""
    base = fake_run.MODEL.replace("chat_template_kwargs: {enable_thinking: true}", "chat: false")
    monkeypatch.setattr(fake_run, "MODEL", base)
    run = FakeRun(tmp_path, suite=fake_run.SUITE + NEEDLE)
    run.measured(node_python)
    assert {step: run.commit(step).verdict for step in ("smoke", "parity", "needle")} == dict.fromkeys(
        ("smoke", "parity", "needle"), "ok"
    )
    assert run.ledger.read_commit(run.key, "eval-tiny") is None
    asked = [row for row in run.rows("throughput", "requests") if row["condition"] == "short c=1"]
    assert {row["prompt_tokens"] for row in asked} == {64} and {row["mode"] for row in asked} >= {"fixed", "stream"}
    assert all(row["correct"] for row in run.rows("needle", "needles"))
    assert {row["api"] for row in run.rows("throughput", "provenance")} == {"completions"}


@pytest.mark.slow(5)
def test_an_insane_engines_cell_is_rejected_before_anything_is_measured(run: FakeRun, node_python: Path) -> None:
    code, said = run.finish(node_python, "insane")
    assert code == 3, said
    commit = run.commit("smoke")
    assert (commit.verdict, commit.reasons) == ("rejected", ("failed_sanity",))
    assert all(run.ledger.read_commit(run.key, step) is None for step in ("throughput", "parity", "eval-tiny"))
    answers = run.rows("smoke", "sanity")
    assert [row["body"] for row in answers] == ["Lorem ipsum"] * 10
    assert not any(row["is_right"] for row in answers)
    details = run.rows("smoke", "verdicts")[0]["details"]
    assert any("0 of 10" in sentence and "en-sum ('Lorem ipsum')" in sentence for sentence in details), details
