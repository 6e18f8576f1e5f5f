"""Healthy texts pass, loops and noise don't; shares of cut-off, blank, unreadable and ambiguous answers have bounds."""

import argparse
import inspect
import json
import random
import re
from pydoc_data.topics import topics
from typing import Any

import pytest

from configs.cell import Model
from configs.evals.suites import GPQA, IFEVAL, MMLU_PRO
from tasks.family import words
from tasks.guards.answers import EXCERPT_CHARS, excerpt, gate_findings, in_full, no_thinking, step_findings, thinks
from tasks.guards.text import degenerate_text, improbable_text, repeated_share, text_columns
from warehouse.ledger.tables import Row
from warehouse.ledger.verdicts import Reason

KOREAN = """오늘 아침에는 유난히 안개가 짙게 끼어 있었다. 강을 건너는 다리 위에서는 앞서 가는 사람의 어깨만 희미하게
보였고, 자전거를 탄 학생들은 종을 울리며 조심스럽게 지나갔다. 시장에 도착했을 때는 이미 생선 장수들이
자리를 잡고 있었고, 얼음 위에 놓인 고등어에서는 바다 냄새가 났다. 할머니 한 분이 나에게 무엇을 찾느냐고
물으셔서, 나는 두부와 애호박을 사러 왔다고 대답했다.

추론 속도를 재는 일은 생각보다 까다롭다. 같은 모델이라도 서버를 다시 시작하면 초당 토큰 수가 몇 퍼센트씩
달라지고, 온도가 오르면 GPU의 클록이 내려간다. 그래서 우리는 한 번의 측정을 믿지 않고, 서로 다른 시각에
여러 번 되풀이하여 그 차이를 함께 적어 둔다. 무엇보다 중요한 것은 출력된 글을 실제로 읽어 보는 것이다.
아무리 빠르더라도 같은 말만 반복하는 모델은 쓸모가 없다.

한글은 자음과 모음을 모아 한 글자를 이루는 문자로, 십오 세기 중반에 세종대왕과 집현전 학자들이 만들었다.
처음에는 양반들의 반대가 심했지만 편지와 소설을 통해 백성들 사이에 널리 퍼졌다. 오늘날에는 휴대전화
자판에서도 몇 개의 기본 획만으로 모든 글자를 입력할 수 있어 매우 편리하다. 언어학자들은 소리와 모양의
관계가 체계적이라는 점을 높이 평가한다."""

CHINESE = """城市的早晨总是从一碗热腾腾的豆浆开始。街角的小店里、老板娘一边揉面、一边和熟客聊着昨晚的球赛。公
交车缓缓驶过湿漉漉的路面、车窗上映出匆忙的人影。有人低头看着手机里的新闻、有人靠着座椅补觉、还有一个孩子踮着脚尖、好奇地
数着窗外的梧桐树。

测量一台机器的速度并不像看上去那样简单。温度、负载、驱动程序的版本、甚至相邻任务的干扰、都会让结果产生几个百
分点的偏差。因此、严谨的工程师会在不同的时间重复实验、记录每一次的条件、并把误差范围写在结论旁边。

长江发源于青藏高原、流经十一个省级行政区、最后在上海注入东海。沿岸的人民依靠江水灌溉农田、运输货物、也曾多次
遭受洪水的侵袭。近几十年来、水利工程改善了航运条件、同时引发了关于生态保护的讨论。"""

JAPANESE = """東京の朝は早い。駅前のカフェでコーヒーを飲みながら、パソコンでメールを確認する。GPUサーバーの負
荷を見ると、昨夜のバッチ処理は無事に終わっていた。データベースのバックアップも問題ない。午後はチームで新しいAPIの設計に
ついて話し合う予定だ。"""

GREETINGS = (
    "Hello (English), Привет (Russian), 你好 (Chinese), 안녕하세요 (Korean), مرحبا (Arabic), नमस्ते (Hindi), "
    "สวัสดี (Thai), Γειά (Greek), שלום (Hebrew), გამარჯობა (Georgian), 😀 (everywhere)"
)

NAMES = "Anna Boris Carla Dmitri Elena Farid Greta Hugo Ines Jonas Katya Liam Mona Nils Olga Pavel Quinn Rosa".split()
CITIES = "Berlin Lyon Porto Turin Graz Lodz Bergen Malmo Gent Cork Bari Split Brno Tartu Kaunas".split()
RNG = random.Random(1)

ENGLISH = topics["class"] + topics["exceptions"]
HEALTHY = {
    "English prose": ENGLISH,
    "a manual": topics["debugger"][topics["debugger"].index("The module") :],
    "Python code": inspect.getsource(argparse),
    "Korean prose": KOREAN,
    "Chinese prose": CHINESE,
    "Japanese prose": JAPANESE,
    "greetings in eleven scripts": GREETINGS,
    "JSON": json.dumps(
        [{"id": i, "name": RNG.choice(NAMES), "city": RNG.choice(CITIES), "score": RNG.random()} for i in range(40)],
        indent=2,
    ),
    "a markdown table": "| Model | Precision | Technique | tok/s |\n|---|---|---|---|\n"
    + "\n".join(
        f"| gemma-{RNG.choice(['12b', '31b'])} | {RNG.choice(['bf16', 'fp8'])} | {RNG.choice(['ar', 'mtp'])} | "
        f"{RNG.uniform(20, 300):.1f} |"
        for _ in range(30)
    ),
    "a numbered list": "\n".join(
        f"{number}. {RNG.choice(NAMES)} went from {RNG.choice(CITIES)} to {RNG.choice(CITIES)} by train."
        for number in range(1, 41)
    ),
    "counting": ", ".join(map(str, range(1, 301))),
    "the demo family's listing": words.draw_listing(random.Random(3), 64, 0).answer,
    "a longer listing": words.draw_listing(random.Random(9), 150, 0).answer,
    "a worked answer": words.worked_answer(words.draw_question("lookup", random.Random(1)), thinking=True),
}

LOOPS = {
    "exclamation marks": "!" * 512,
    "noughts": "0" * 512,
    "one Chinese character": "的" * 300,
    "two Chinese characters": "哈哈" * 200,
    "pads in text": "<pad>" * 200,
    "newlines": "\n" * 512,
    "a Korean greeting": "안녕하세요 여러분, 반갑습니다. " * 30,
    "a Chinese sentence": "城市的早晨总是从一碗热腾腾的豆浆开始。" * 20,
    "twenty words": " ".join((random.Random(5).sample(ENGLISH.split(), 20) * 13)[:256]),
}
CYCLE_OF_56 = " ".join((random.Random(5).sample(ENGLISH.split(), 56) * 5)[:256])
COUNTED_LOOP = " ".join(f"{number}. The cat sat on the mat." for number in range(60))

_POOLS = (
    ENGLISH.split(),
    re.findall("..", KOREAN),
    re.findall("..", CHINESE),
    "слово работа время человек рука дверь город вода жизнь".split(),
    "كتاب مدرسة بيت ماء شمس قمر ولد بنت رجل مدينة".split(),
    "घर पानी सूरज चाँद किताब लड़का".split(),
)
SOUP = "".join(RNG.choice(RNG.choice(_POOLS)) + RNG.choice(["", " "]) for _ in range(256))
"""Tokens drawn from a large vocabulary."""


def tokens(text: str) -> list[int]:
    """Ids as a large vocabulary would cut the text: words and their ends, single digits, one or two CJK characters."""
    pieces = re.findall(r" ?[^\W\d]{1,7}|\d|\s+|[^\w\s]", text)
    return [int.from_bytes(piece.encode(), "big") for piece in pieces]


def row(text: str, token_ids: list[int] | None) -> Row:
    """A row of `requests` as `request_row` makes it."""
    completion = len(token_ids) if token_ids else len(text.split())
    return {"text": text, "completion_tokens": completion, **text_columns(text, token_ids)}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("characters", [150, 600, 1200, 2400, 6000])
def test_what_healthy_models_write_is_neither_a_loop_nor_noise(name: str, characters: int) -> None:
    text = HEALTHY[name][:characters]
    assert degenerate_text([row(text, tokens(text))]) is None
    assert degenerate_text([row(text, None)]) is None, "an engine that sends no token ids is judged by characters"


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_rejected_with_blanks_or_none_whatever_its_alphabet(name: str) -> None:
    for token_ids in (tokens(LOOPS[name]), None):
        found = degenerate_text([row(LOOPS[name], token_ids)] * 5)
        assert found is not None and (found.reason, found.severity) == (Reason.LOOPING_TEXT, "rejected")


GOOD, LOOP = row(ENGLISH[:1200], None), row("!" * 512, None)
BROKEN = "\ufffd\ufffd".join(map(chr, random.Random(3).choices(range(97, 122), k=300)))
TWO_TOKENS = "".join(random.Random(3).choices("01", k=512))


@pytest.mark.parametrize(
    ("rows", "said", "words"),
    [
        ([row("", [0] * 512)], "looping_text rejected", ""),
        ([{**row("", None), "completion_tokens": 512}], "gibberish rejected", "512 tokens without a character"),
        ([row(CYCLE_OF_56, tokens(CYCLE_OF_56))], "looping_text suspect", ""),
        ([row(COUNTED_LOOP, tokens(COUNTED_LOOP))], "looping_text suspect", ""),
        ([row(ENGLISH[:800] + "!" * 1200, None)], "looping_text suspect", ""),
        ([LOOP] * 2 + [GOOD] * 8, "looping_text suspect", "2 of 10"),
        ([LOOP] + [GOOD] * 9, None, ""),
        ([row(SOUP, tokens(SOUP))], "gibberish rejected", ""),
        ([row(BROKEN, tokens(BROKEN))], "gibberish rejected", ""),
        ([row(TWO_TOKENS, tokens(TWO_TOKENS))], "gibberish rejected", "2 different ones"),
    ],
    ids=["pads", "no text", "cycle", "counts", "ends in a loop", "two of ten", "one of ten", "alphabets", "broken",
         "two tokens"],
)  # fmt: skip
def test_loops_and_noise_are_found(rows: list[dict[str, Any]], said: str | None, words: str) -> None:
    found = degenerate_text(rows)
    assert (found and f"{found.reason.value} {found.severity}") == said
    assert found is None or words in found.sentence


@pytest.mark.parametrize(
    ("mean_logprobs", "severity"),
    [
        ([-0.2, -0.8], None),
        ([-2.9, -3.1], None),
        ([None, None], None),
        ([], None),
        ([-4.5, None], "suspect"),
        ([-6.36, -12.5], "rejected"),
    ],
)
def test_what_is_improbable_to_its_own_model_is_noise(mean_logprobs: list[float | None], severity: str | None) -> None:
    found = improbable_text(mean_logprobs)
    assert (found and (found.reason, found.severity)) == (severity and (Reason.GIBBERISH, severity))
    assert improbable_text(mean_logprobs, is_real=False) is None, "of dummy weights all is"


@pytest.mark.parametrize(
    ("text", "token_ids", "columns"),
    [
        ("", None, {"loop_share": None, "token_loop_share": None, "char_loop_share": None, "compressed_share": None}),
        ("", [0] * 32, {"token_loop_share": 1 - 1 / 17, "distinct_share": 1 / 32}),
        ("a b c d e", [1, 2], {"loop_share": 0.0, "token_loop_share": None, "distinct_share": 1.0}),
    ],
)
def test_what_is_not_measured_is_null(text: str, token_ids: list[int] | None, columns: dict[str, Any]) -> None:
    measured = text_columns(text, token_ids)
    assert {name: measured[name] for name in columns} == pytest.approx(columns)


def test_a_share_of_repeated_runs_is_what_it_says() -> None:
    assert repeated_share("abcabcabc", 3) == pytest.approx(1 - 3 / 7)
    assert repeated_share("abcd", 4) is None


FINE: dict[str, Any] = {"last_in_body": "C", "flexible": "C", "correct": True, "truncated": False, "blank": False}


def rows(n: int, odd: int = 0, **changed: Any) -> list[dict[str, Any]]:
    """`n` good answers, of which `odd` are changed."""
    return [{**FINE, **(changed if index < odd else {}), "item_id": f"item-{index}"} for index in range(n)]


CUT = {"truncated": True, "blank": True, "last_in_body": None, "flexible": None, "correct": False}
BLANK = CUT | {"truncated": False}
UNREADABLE = {"last_in_body": None, "flexible": None, "correct": False}
AMBIGUOUS = {"flexible": "A"}


@pytest.mark.parametrize(
    ("odd", "changed", "said"),
    [
        (0, {}, []),
        (2, CUT, []),
        (3, CUT, [("truncated", "suspect")]),
        (21, CUT, [("truncated", "rejected")]),
        (1, BLANK, []),
        (2, BLANK, [("blank_output", "suspect")]),
        (11, BLANK, [("blank_output", "rejected")]),
        (5, UNREADABLE, []),
        (6, UNREADABLE, [("unreadable_answers", "suspect")]),
        (21, UNREADABLE, [("unreadable_answers", "rejected")]),
        (10, AMBIGUOUS, []),
        (11, AMBIGUOUS, [("extractors_disagree", "suspect")]),
        (66, {"correct": False}, [("at_chance", "rejected")]),
    ],
)
def test_a_whole_evaluation_is_judged_by_shares(odd: int, changed: dict[str, Any], said: list[tuple[str, str]]) -> None:
    assert [(found.reason, found.severity) for found in step_findings(rows(100, odd, **changed), GPQA)] == said


@pytest.mark.parametrize(
    ("odd", "changed", "said"),
    [
        (0, {}, []),
        (2, {"correct": False}, []),
        (3, {"correct": False}, []),
        (4, {"correct": False}, [("at_chance", "rejected")]),
        (1, CUT, [("truncated", "rejected")]),
        (1, BLANK, [("blank_output", "rejected")]),
        (1, UNREADABLE, [("unreadable_answers", "suspect")]),
        (2, UNREADABLE, [("unreadable_answers", "rejected")]),
        (1, AMBIGUOUS, [("extractors_disagree", "suspect")]),
        (2, AMBIGUOUS, [("extractors_disagree", "rejected")]),
    ],
)
def test_the_gate_wants_five_good_answers(odd: int, changed: dict[str, Any], said: list[tuple[str, str]]) -> None:
    assert [(found.reason, found.severity) for found in gate_findings(rows(5, odd, **changed), GPQA)] == said


@pytest.mark.parametrize(
    ("model", "answers", "is_found"),
    [
        ({"chat_template_kwargs": {"enable_thinking": True}}, [("", "C"), (None, "C")], True),
        ({"chat_template_kwargs": {"thinking": True}}, [(None, "thought\nperhaps A\nC")], True),
        ({"reasoning_parser": "qwen3"}, [(" \n", "C")], True),
        ({"reasoning_parser": "qwen3"}, [("", "C"), ("easy", "C")], False),
        ({"reasoning_parser": "qwen3"}, [("", "[THINK]easy[/THINK]C")], False),
        ({"reasoning_parser": "qwen3", "chat_template_kwargs": {"enable_thinking": False}}, [("", "C")], False),
        ({}, [("", "C")], False),
        ({"reasoning_parser": "qwen3"}, [], False),
    ],
)
def test_where_thinking_is_asked_for_one_answer_at_least_has_thoughts(
    model: dict[str, Any], answers: list[tuple[str | None, str]], is_found: bool
) -> None:
    asked = Model(name="m", family="m", hub_id="m/m", total_params_b=1, active_params_b=1, **model)
    found = no_thinking(asked, [thinks({"reasoning": thought, "body": body}) for thought, body in answers])
    assert (found and (found.reason, found.severity)) == ((Reason.NO_THINKING, "suspect") if is_found else None)
    assert found is None or "name the reasoning_parser" in found.sentence


def test_instructions_need_no_letters_but_somebody_has_to_follow_one() -> None:
    checked = rows(5, 5, last_in_body=None, flexible=None)
    assert gate_findings(checked, IFEVAL) == []
    none_followed = gate_findings([row | {"correct": False} for row in checked], IFEVAL)
    assert [found.reason for found in none_followed] == ["at_chance"]


def test_answers_to_one_item_are_no_independent_guesses() -> None:
    """12 right of 20 is far above chance; as 3 right of 5 items, four answers each, it is not."""
    repeated = [row | {"sample": sample} for row in rows(5, 2, correct=False) for sample in range(4)]
    assert [found.reason for found in step_findings(repeated, GPQA)] == ["at_chance"]
    assert "3 of 5 right" in step_findings(repeated, GPQA)[0].sentence


def cut_off() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Five answers, of which the third was cut off while it was thinking."""
    said: list[dict[str, Any]] = [{"body": "The answer is (C).", "reasoning": "easy"} for _ in range(5)]
    said[2] = {"body": None, "reasoning": "word " * 100 + "but then (A)\nwould be", "finish_reason": "length"}
    answers = rows(5)
    answers[2] |= CUT | {"completion_tokens": 32768, "first": "A"}
    return answers, said


def test_a_rejection_shows_the_end_of_the_answer_that_explains_it() -> None:
    (cut,) = gate_findings(cut_off()[0], MMLU_PRO, cut_off()[1])
    assert cut.sentence.startswith("1 of 5 answers were cut off by the length limit (20.0%, rejected above 0%); item-2")
    assert cut.sentence.endswith("word but then (A) would be [answer] nothing")
    assert "ends: [thinking] …" in cut.sentence
    assert "\n" not in cut.sentence
    assert in_full(gate_findings, *cut_off()[:1], MMLU_PRO, cut_off()[1]) == [], "nothing is left out"


def test_a_gated_suites_text_stays_out_of_what_the_dataset_keeps() -> None:
    answers, said = cut_off()
    (cut,) = gate_findings(answers, GPQA, said)
    assert cut.sentence == (
        "1 of 5 answers were cut off by the length limit (20.0%, rejected above 0%); item-2 ended by length after "
        "32768 tokens; read: last_in_body none, strict none, flexible none, first A"
    )
    (full,) = in_full(gate_findings, answers, GPQA, said)
    assert full.endswith("word but then (A) would be [answer] nothing"), "for a file on the node"
    for reason, odd in ((UNREADABLE, 40), (AMBIGUOUS, 40), ({"correct": False}, 90)):
        spoken = [{"body": "the secret question", "reasoning": "secret"} for _ in range(100)]
        found = step_findings(rows(100, odd, **reason), GPQA, spoken)
        assert found and "secret" not in " ".join(finding.sentence for finding in found)


def test_an_excerpt_is_of_the_answer_first_and_of_the_thinking_where_there_is_room() -> None:
    assert excerpt({"body": "(C)", "reasoning": "hm"}) == "[thinking] hm [answer] (C)"
    assert excerpt({"body": "x" * 300, "reasoning": "hm"}) == "[answer] …" + "x" * EXCERPT_CHARS
