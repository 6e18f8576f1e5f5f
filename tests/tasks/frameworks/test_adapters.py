"""Every entry of the table through its real framework, against a fake chat server that answers in any order."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from configs.evals.suites import EVALUATIONS, IFEVAL, Columns, Evaluation, SuiteFacts
from configs.evals.suites import Framework as Name
from tasks.evals.exchange import prompt_hash
from tasks.evals.extractors import letter_of
from tasks.evals.grading import PairingError, paired
from tasks.evals.shapes import item_of, twin
from tasks.frameworks.job import Item, Job, Result
from tasks.frameworks.process import Framework, FrameworkFailed
from tasks.host.environments import ensure
from tasks.steps.eval import task_of
from tests.fake_chat import FakeChat, fake_chat
from tests.tasks.evals.graded import Recorded
from tests.tasks.frameworks.odd_records import RECORDS
from tests.tasks.frameworks.test_process import adapter

FORMS: dict[Name, str] = {
    "lm-eval": "The answer is ({letter}).",
    "inspect": "ANSWER: {letter}",
    "hret": "정답: ({letter})",
}
"""Of an answer, as each framework's own reader wants it."""

MMLU = SuiteFacts(
    name="mmlu", title="MMLU", hub_id="cais/mmlu", subsets=("all",), split="test", revision=None, gated=False,
    items=14042, letters="ABCD", prompt_tokens=150, longest_prompt_tokens=1500, answer_tokens=1500,
    columns=Columns("question", "choices", "answer", first=0, category="subject"),
)  # fmt: skip

FURTHER = Evaluation(
    "eval-mmlu", MMLU, "lm-eval", "exact_match,strict-match",
    "mmlu/flan_cot_zeroshot/_mmlu_flan_cot_zeroshot_template_yaml",
    "The following are multiple choice questions (with answers) about {{subject}}.",
)  # fmt: skip
"""One more suite of a known framework: an entry like this, and its odd records, are all that it takes."""

ENTRIES = {**EVALUATIONS, FURTHER.step: FURTHER}

Run = Callable[[Job, Evaluation], Result]

every_entry = pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)


@contextmanager
def started(framework: Framework) -> Iterator[Callable[[Job], Result]]:
    with asyncio.Runner() as runner:
        try:
            yield lambda job: runner.run(framework.run(job, "job"))
        finally:
            runner.run(framework.stop())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Does a job in the entry's framework, which is started once."""
    with ExitStack() as stack:
        running: dict[Name, Callable[[Job], Result]] = {}

        def one(job: Job, entry: Evaluation) -> Result:
            name = entry.framework
            if name not in running:
                framework = Framework(name, ensure(name), tmp_path_factory.mktemp(name))
                running[name] = stack.enter_context(started(framework))
            return running[name](job)

        yield one


@pytest.fixture
def entry() -> Evaluation:
    return EVALUATIONS["eval-gpqa"]


class Asking:
    """An entry of the table, its framework, and a chat server that answers in the form that the framework reads."""

    def __init__(self, entry: Evaluation, run: Run, chat: FakeChat, folder: Path) -> None:
        self.entry, self.chat, self._run, self._folder = entry, chat, run, folder
        chat.form = FORMS[entry.framework]

    def items(self, n: int = 12, *, plain: bool = True) -> tuple[Item, ...]:
        return tuple(item_of(self.entry.suite, record, "", plain=plain) for record in twin(self.entry.suite)[:n])

    def odd(self) -> tuple[Item, ...]:
        suite = self.entry.suite
        return tuple(item_of(suite, record, "", plain=False) for record in RECORDS[suite.name])

    def job(self, items: tuple[Item, ...], **fields: Any) -> Job:
        return job_of(self.entry, self._folder, items, self.chat.base_url, **fields)

    def run(self, items: tuple[Item, ...], **fields: Any) -> Result:
        return self._run(self.job(items, **fields), self.entry)


@pytest.fixture
def asking(entry: Evaluation, run: Run, tmp_path: Path) -> Iterator[Asking]:
    with fake_chat() as chat:
        yield Asking(entry, run, chat, tmp_path)


def job_of(entry: Evaluation, folder: Path, items: tuple[Item, ...], url: str = "", **fields: Any) -> Job:
    return replace(Job("ask", task_of(entry), items, url, "the-family/target", 64, 8, True, str(folder)), **fields)


def value(result: Result, entry: Evaluation) -> float:
    return {score.metric: score.value for score in result.scores}[entry.metric]


def mispaired(chat: FakeChat, result: Result) -> list[str]:
    """Samples whose response isn't what the server answers to the sample's own messages."""
    said = (chat.answer({"model": "", "messages": sample.messages}) for sample in result.samples)
    pairs = zip(result.samples, said, strict=True)
    return [one.item_id for one, answer in pairs if one.response != answer["choices"][0]["message"]["content"]]


def answered_by(chat: FakeChat) -> Recorded:
    """What the server really answered, as a response log would have it."""
    bodies = (chat.answer(asked)["choices"][0]["message"]["content"] for asked in chat.asked)
    hashes = [prompt_hash(asked["messages"]) for asked in chat.asked]
    row = {"sample": 0, "occurrence": 0}
    return Recorded([{**row, "prompt_hash": name, "body": body} for name, body in zip(hashes, bodies, strict=True)])


@pytest.mark.slow(9)
@every_entry
def test_every_item_is_asked_once_as_it_is_and_gets_its_own_answer(asking: Asking) -> None:
    items, entry, chat = asking.items(40), asking.entry, asking.chat
    result = asking.run(items, concurrency=20)
    asked = {item.item_id: item.question for item in items}
    assert {sample.item_id: sample.messages for sample in result.samples} == {
        name: [{"role": "user", "content": question}] for name, question in asked.items()
    }
    assert sorted(body["messages"][0]["content"] for body in chat.asked) == sorted(asked.values())
    assert {(body["model"], body["max_tokens"]) for body in chat.asked} == {("the-family/target", 64)}
    assert mispaired(chat, result) == [] and all(sample.correct for sample in result.samples)
    gold = {item.item_id: item.gold for item in items if item.gold}
    letters = {sample.item_id: letter_of(entry.suite.letters, sample.extracted or "") for sample in result.samples}
    assert not gold or letters == gold
    assert (value(result, entry), result.scores[0].n) == (1.0, 40)
    one_by_one = asking.run(items[:6], concurrency=1)
    assert len(one_by_one.samples) == 6 and all(sample.correct for sample in one_by_one.samples)


@pytest.mark.slow(7)
@every_entry
def test_wrong_answers_and_blanks_score_nothing_and_a_blank_is_seen_as_one(asking: Asking) -> None:
    asking.chat.lie = "wrong"
    wrong = asking.run(asking.items(6))
    assert [sample.correct for sample in wrong.samples] == [False] * 6 and value(wrong, asking.entry) == 0.0
    asking.chat.lie = "blank"
    blank = asking.run(asking.items(6, plain=False), plain=False)
    assert [(sample.response, bool(sample.correct)) for sample in blank.samples] == [("", False)] * 6
    assert value(blank, asking.entry) == 0.0
    if asking.entry.framework != "lm-eval":
        assert {(sample.extracted, sample.details["unread"]) for sample in blank.samples} == {(None, "no_response")}


@pytest.mark.slow(1)
@every_entry
def test_grading_again_needs_no_server_and_gives_what_asking_gave(asking: Asking) -> None:
    first = asking.run(asking.items())
    answers = {sample.item_id: sample.response for sample in first.samples}
    again = asking.run(asking.items(), do="grade", base_url="", answers=answers)
    same = ("item_id", "messages", "response", "extracted", "correct")
    assert [[getattr(sample, name) for name in same] for sample in again.samples] == [
        [getattr(sample, name) for name in same] for sample in first.samples
    ]
    assert again.scores == first.scores and len(asking.chat.asked) == 12


@pytest.mark.slow(1)
@every_entry
def test_odd_records_are_paired_with_their_own_answers_and_swapped_prompts_are_refused(asking: Asking) -> None:
    """What the real frameworks send of records as the datasets have them is what pairing expects, and no more."""
    items = asking.odd()
    result = asking.run(items, plain=False)
    response_log = answered_by(asking.chat)
    assert [each.item for each in paired(result, items, response_log, 0)] == list(items)
    first, second, *rest = result.samples
    swapped = (replace(first, item_id=second.item_id), replace(second, item_id=first.item_id), *rest)
    with pytest.raises(PairingError, match=r"2 of . items were asked with a prompt that has not their question"):
        paired(replace(result, samples=swapped), items, response_log, 0)


@pytest.mark.slow(1)
@every_entry
def test_thoughts_that_the_engine_left_in_the_body_are_not_graded(asking: Asking) -> None:
    """As with a model whose recipe names no reasoning parser, or another family's."""
    marks = ["<think>{}</think>\n\n", "[THINK]{}[/THINK]", "<|channel>thought\n{}\n<channel|>", "thought\n{}\n"]
    thoughts = [each.format("정답: (A) The answer is (A).\nANSWER: A") for each in marks]
    form = FORMS[asking.entry.framework]
    answers = {
        item.item_id: thoughts[number % len(thoughts)] + form.format(letter=item.gold)
        for number, item in enumerate(asking.odd())
    }
    result = asking.run(asking.odd(), do="grade", plain=False, answers=answers)
    assert [sample.correct for sample in result.samples] == [True] * len(answers), result.samples


LIES = ("refused", "no choices", "broken")
BAD_ANSWERS = {
    "eval-gpqa": (LIES[1:], "lm-eval failed: "),
    "eval-gpqa-inspect": (LIES, "inspect failed: .*(content_filter|IndexError|Error code: 500)"),
    "eval-kmmlu": (LIES, "hret failed: item .*(content_filter|not enough values|code: 500)"),
}


@pytest.mark.slow(1)
@pytest.mark.parametrize("entry", [EVALUATIONS[name] for name in BAD_ANSWERS], ids=BAD_ANSWERS)
def test_an_answer_that_is_none_and_a_dead_server_fail_the_job(asking: Asking) -> None:
    lies, said = BAD_ANSWERS[asking.entry.step]
    for lie in lies:
        asking.chat.lie = lie  # type: ignore[assignment]
        with pytest.raises(FrameworkFailed, match=said):
            asking.run(asking.items(4))
    for at_once in (8, 1):
        with pytest.raises(FrameworkFailed, match=r"failed: .*(127\.0\.0\.1|Connect)"):
            asking.run(asking.items(4), base_url="http://127.0.0.1:9/v1", concurrency=at_once)


def listed(item: Item, form: str) -> str:
    return "\n".join(form.format(*pair) for pair in zip("ABCD", item.choices, strict=False))


def as_asked(entry: Evaluation, item: Item) -> tuple[str, str]:
    """How the message begins and ends in which a framework asks an item."""
    korean = "다음은 객관식 문제입니다. 당신의 추론 과정을 간결하게 요약한 후"
    return {
        "eval-gpqa": (
            f"What is the correct answer to this question:{item.question}\nChoices:\n{listed(item, '({}) {}')}\n",
            "\nLet's think step by step: ",
        ),
        "eval-mmlu-pro": (f"Question:\n{item.question}\nOptions:\n{listed(item, '{}. {}')}\n", "think step by step."),
        "eval-ifeval": (item.question, item.question),
        "eval-mmlu": (f"Q: {item.question}\n(A) {item.choices[0]} (B)" if item.choices else "", "think step by step."),
        "eval-gpqa-inspect": (
            "Answer the following multiple choice question. The last line of your",
            f"{item.question}\n\n{listed(item, '{}) {}')}",
        ),
        "eval-haerae": (korean, f"(A), (B), (C), (D), (E) 중 하나입니다. {item.question}"),
        "eval-kmmlu": (korean, f"\n\n질문: {item.question}\n{listed(item, '{}. {}')}"),
    }[entry.step]


@pytest.mark.slow(1)
@every_entry
def test_the_frameworks_own_prompt_arrives_with_the_choices_in_the_order_given(asking: Asking) -> None:
    items, system = asking.items(plain=False), asking.entry.system
    sent = {sample.item_id: sample.messages for sample in asking.run(items, plain=False).samples}
    arrived = [body["messages"] for body in asking.chat.asked]
    for item in items:
        messages, (begin, end) = sent[item.item_id], as_asked(asking.entry, item)
        assert messages in arrived
        assert messages[-1]["content"].startswith(begin) and messages[-1]["content"].endswith(end)
        assert [said["role"] for said in messages] == ["system", "user"][-len(messages) :]
        if system:
            assert system.split(" {{")[0] + f" {item.category}." in messages[0]["content"]


@pytest.mark.slow(1)
@pytest.mark.parametrize("entry", [one for one in ENTRIES.values() if one.framework == "lm-eval"])
def test_lm_eval_says_nothing_about_sampling_and_sends_no_stop_string(asking: Asking) -> None:
    asking.run(asking.items(3))
    assert {tuple(sorted(body)) for body in asking.chat.asked} == {("max_tokens", "messages", "model")}


CHECKED = next(one for one in EVALUATIONS.values() if one.suite is IFEVAL)


def instructed(name: str, item_id: str = "a", **arguments: Any) -> Item:
    record = {"key": 1, "prompt": "Say it.", "instruction_id_list": [name], "kwargs": [arguments]}
    return replace(item_of(IFEVAL, record, "", plain=False), item_id=item_id)


def test_instructions_are_checked_strictly_and_loosely(run: Run, tmp_path: Path) -> None:
    items = tuple(instructed("punctuation:no_comma", name) for name in "abc")
    answers = {"a": "No comma here.", "b": "Sure, here it is:\nno comma", "c": "Well, one, two"}
    result = run(job_of(CHECKED, tmp_path, items, do="grade", answers=answers), CHECKED)
    assert [sample.correct for sample in result.samples] == [True, False, False]
    assert [sample.details["prompt_level_loose"] for sample in result.samples] == [True, True, False]
    assert [sample.details["inst_strict"] for sample in result.samples] == [[True], [False], [False]]
    assert {score.metric: round(score.value, 2) for score in result.scores} == {
        "prompt_level_strict_acc,none": 0.33,
        "inst_level_strict_acc,none": 0.33,
        "prompt_level_loose_acc,none": 0.67,
        "inst_level_loose_acc,none": 0.67,
    }


def test_a_checker_that_throws_dice_throws_the_same_for_the_same_item(run: Run, tmp_path: Path) -> None:
    """letter_frequency asks for a letter of its own choice where the given one is none of a-z."""
    arguments = {"letter": "#", "let_frequency": 4, "let_relation": "at least"}
    items = tuple(instructed("keywords:letter_frequency", f"{n}", **arguments) for n in range(40))
    answers = {item.item_id: "aaaabbbbccccddddeeeeffffgggg" for item in items}
    job = job_of(CHECKED, tmp_path, items, do="grade", answers=answers)
    first, again, last_ten = (
        [sample.correct for sample in run(one, CHECKED).samples]
        for one in (job, job, replace(job, items=items[30:], answers=dict([*answers.items()][30:])))
    )
    assert first == again and len(set(first)) == 2 and last_ten == first[30:]


def test_a_grade_job_without_answers_asks_only_whether_grading_could_be_done(run: Run, tmp_path: Path) -> None:
    known, unknown = instructed("punctuation:no_comma"), instructed("punctuation:no_semicolon")
    assert run(job_of(CHECKED, tmp_path, (known,), do="grade"), CHECKED).samples == ()
    with pytest.raises(FrameworkFailed, match="lm-eval has no checker for punctuation:no_semicolon"):
        run(job_of(CHECKED, tmp_path, (unknown,), do="grade"), CHECKED)


@pytest.mark.slow(5)
@pytest.mark.parametrize("entry", [CHECKED])
def test_punkt_that_is_missing_is_said_before_anything_is_asked(tmp_path: Path, asking: Asking) -> None:
    nowhere = {"HOME": str(tmp_path), "NLTK_DATA": str(tmp_path), "https_proxy": "http://127.0.0.1:9"}
    item = instructed("length_constraints:number_sentences", num_sentences=2)
    with adapter(ensure("lm-eval"), "tasks.frameworks.lm_eval_adapter", tmp_path, nowhere) as served:
        error = served.run(asking.job((item,))).error
        without = served.run(asking.job(asking.items(2)))
    assert error and "number_sentences needs nltk's punkt_tab, which is not here and can't be downloaded" in error
    assert without.error is None and len(asking.chat.asked) == 2


@pytest.mark.slow(1)
@pytest.mark.parametrize("entry", [EVALUATIONS["eval-kmmlu"]])
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"answer": 5}, "HRET reads the answer '', not '"),
        ({"answer": None}, "its record has no answer"),
        ({"B": ""}, "its record has no B"),
    ],
)
def test_what_hret_would_ask_otherwise_is_an_error(asking: Asking, change: dict[str, object], complaint: str) -> None:
    first, second = asking.items(2, plain=False)
    broken = (first, replace(second, record={**second.record, **change}))
    with pytest.raises(FrameworkFailed, match=f"item {second.item_id}: {complaint}"):
        asking.run(broken, plain=False)
    assert asking.chat.asked == []


@pytest.mark.slow(4)
@pytest.mark.parametrize("entry", [EVALUATIONS["eval-haerae"]])
def test_hrets_released_backend_answers_wrong_questions_and_messages_show_it(asking: Asking, tmp_path: Path) -> None:
    items = asking.items(40)
    with started(Framework("hret", ensure("hret"), tmp_path, "tests.tasks.frameworks.stock_hret")) as stock:
        result = stock(asking.job(items, concurrency=20))
    assert len(mispaired(asking.chat, result)) > 10
    assert result.scores[0].value < 0.75, "every answer was right"
    with pytest.raises(PairingError, match="of 40 items were graded on a response that is not the engine's answer"):
        paired(result, items, answered_by(asking.chat), 0)
