"""Golden answers, and what each reader makes of them."""

import pytest

from tasks.evals.extractors import Readings, letter_of, read
from tasks.frameworks.thoughts import without_thoughts

ABCD, ABCDE, A_TO_J = "ABCD", "ABCDE", "ABCDEFGHIJ"

GOLDEN = [
    ("The answer is (C).", "C"),
    ("The answer is C", "C"),
    ("The answer is c.", "C"),
    ("the correct answer is: (b)", "B"),
    ("**Answer: C**", "C"),
    ("**Answer:** C", "C"),
    ("The correct answer is **(C)**", "C"),
    ("The correct answer is __C__.", "C"),
    ("The answer is `D`.", "D"),
    ("### Final Answer\n\nC", "C"),
    ("Answer:\nB", "B"),
    ("ANSWER: D", "D"),
    ("Answer: C. Paris is the capital", "C"),
    ("Answer: C) Paris", "C"),
    ("Answer: C Paris", "C"),
    ("Answer: A (Paris)", "A"),
    ("Answer: A - Paris", "A"),
    ("Answer: A\u2014Paris", "A"),
    ("The answer is A because it rains", "A"),
    ("The answer is D since it rains", "D"),
    ("The answer is option (B), which is larger", "B"),
    ("The correct answer choice is D.", "D"),
    ("The answer to this question is therefore B.", "B"),
    ("The answer must be (D).", "D"),
    ("My answer is \u201cB\u201d.", "B"),
    ("(A) is tempting, (B) is wrong. The answer is (C).", "C"),
    ("The answer is (C). By contrast (A) is wrong.", "C"),
    ("The answer is (C), and (A) is wrong.", "C"),
    ("The answer is (A) and (B) is wrong because it rains.", "A"),
    ("The answer is A. Wait, no: the answer is B.", "B"),
    ("The answer is not (A) but (B).", "B"),
    ("The answer is not A, but rather B.", "B"),
    ("Answer: (D)\n\nNote that (A) and (B) look alike.", "D"),
    ("I considered it.\n\n(B)\n", "B"),
    ("So:\n**C**", "C"),
    ("P(A) is 0.1, so (C) it is, as f(B) shows", "C"),
    ("Final Answer: C", "C"),
    ("<answer>D</answer>", "D"),
    ("<answer>\n(D) 3.2 eV\n</answer>", "D"),
    ("It follows that 3.2 eV is released (Option C).", "C"),
    ("This is what option C says.", "C"),
    ("The only such letter is D: the answer among (A), (B) and (C) is (B).", "B"),
    # by another name
    ("The correct option is **(B)**. Option (A) ignores the spin, and option (D) has the wrong sign.", "B"),
    ("The correct choice is **B**. In contrast, (D) would need more energy.", "B"),
    ("The closest option is **(D)**, while (C) is off by 10.", "D"),
    ("The correct option is **C**.", "C"),
    ("Hence, the correct choice is **D**.", "D"),
    ("Best option: (B)\n\n(C) would be too slow.", "B"),
    ("The right statement is therefore (A); (B) is wrong.", "A"),
    ("The correct option among these must be (C), not (D).", "C"),
    ("The incorrect option is (A).\nThe correct option is (B).", "B"),
    ("The correct option is (B). The incorrect answer is (A).", "B"),
    # behind the letter
    ("**Option (B) is correct.** - (A) is too small - (C) is off - (D) violates the rule", "B"),
    ("Thus, **(D)** is the correct answer. Options (A), (B) are wrong.", "D"),
    ("Thus, **D** is the correct answer.", "D"),
    ("Hence (B) is the right answer; (C) is not.", "B"),
    ("**(D) is the correct answer:** (A) ignores the spin.", "D"),
    ("(A) is not the correct answer, (C) is the correct option. (D) is no better.", "C"),
    ("(B) must be the correct choice, (A) has no unit.", "B"),
    ("If (A) is the correct answer, (B) holds too. So (C) is the best choice.", "C"),
    ("The answer is (D): (A) is correct, (B) is correct.", "D"),
    ("Statement (A) is correct. Statement (B) is correct.\n\n(D)", "D"),
    ("**(B)가 정답입니다.** (A)와 (C)는 시기가 다릅니다.", "B"),
    ("따라서 B가 정답이다. (A)는 다르다.", "B"),
    ("(D)가 맞습니다. (A)와 (C)는 시기가 다릅니다.", "D"),
    ("C번이 정답입니다", "C"),
    ("(A)가 정답이 아니므로 (B)가 정답이 됩니다. (C)는 다릅니다.", "B"),
    # tables
    ("| Option | Verdict |\n|---|---|\n| (A) | wrong |\n| (B) | right |\n\n**Answer: B**", "B"),
    ("The correct option is (B).\n\n| Option | Why |\n|---|---|\n| (A) | too small |\n| (C) | too large |", "B"),
    ("| What | Found |\n|---|---|\n| mass | 3 |\n| the answer is (C) |", "C"),
    ("| Option | Verdict |\n|---|---|\n| (A) | wrong |\n| (B) | right |", None),
    # LaTeX
    (r"$\boxed{C}$", "C"),
    (r"\boxed{\text{C}}", "C"),
    (r"\boxed{\textbf{(C)}}", "C"),
    (r"Thus \[ \boxed{\mathrm{B}} \]", "B"),
    (r"The answer is $\boxed{D}$.", "D"),
    (r"The answer is \(\boxed{B}\).", "B"),
    (r"\boxed{42} is what (B) says", "B"),
    (r"\boxed{A} and then again \boxed{D}", "D"),
    (r"\boxed{\text{(C) } 3.2\ \text{eV}}", "C"),
    (r"\boxed{\text{(C) $x^{2}$ eV}}", "C"),
    (r"The answer is \(B\)", "B"),
    (r"The answer is $\textbf{(A)}$", "A"),
    # Korean
    ("따라서, 정답은: B", "B"),
    ("정답은 (C)입니다.", "C"),
    ("정답은 **C**입니다.", "C"),
    ("정답: D", "D"),
    ("정답\uff1aD", "D"),
    ("따라서 답은 B번이다.", "B"),
    ("정답은 A가 아니라 B입니다.", "B"),
    ("정답은 \uff08C\uff09이다.", "C"),
    ("정답은 \uff22입니다.", "B"),
    ("정답: (A)? 아니다. 다시 보면 정답은 (D)이다. (B)는 함정이다.", "D"),
    ("그의 대답은 A였다. 그러므로 (C)", "C"),
    ("정답은 선택지 B입니다", "B"),
    ("정답은 A형 간염이 아니다.", None),
    ("정답은 'C'입니다", "C"),
    ("정답은 \u2018C\u2019번입니다. (A)는 다릅니다.", "C"),
    ("정답은: (A), (B), (C) 중 (B)입니다", "B"),
    ("정답은 A, B, C 중에서 B입니다. (A)는 아니다.", "B"),
    ("정답은 보기 중 (D)입니다", "D"),
    ("정답은: (A), (B), (C), (D) 중 하나입니다", None),
    # thinking
    ("<think>(A)? The answer is (D).</think>The answer is (B)", "B"),
    ("<think>The answer is (A)", None),
    ("The answer is A, I think</think>\n\nThe answer is (C)", "C"),
    ("<think>one</think>(A)<think>The answer is (B)</think>", "A"),
]

UNREADABLE = [
    "", "Answer: A lot of people think so.", "The answer is a matter of taste.", "The answer is a (very) long story.",
    "Answer: I think nobody knows.", "The answer is E = mc^2", "The answer is D-glucose", "The answer is Vitamin C",
    "The answer is C/2 of it", "Answer: B's mother", "Answer: Bees", "The answer is (A) or (B).",
    "The answer is A or B", "Answer: A, B and C", "The answer is A and (C).",
    "The answer is (A) or (B). (C) is wrong.", "정답은 A 또는 B입니다", "The answer is not (A).",
    "There is no answer here.", "The answer is (Z).", "First (A), then (B), finally (D)",
    "(A)\nis too small.\n\n(B)\nis too large.", "Option (A) is correct. Option (B) is correct.",
    "Neither (A) nor (B) is the correct answer.", "(A) and (B) is the correct answer.",
    "(A) is not the correct answer.", "Is (A) or (B) is the right answer?", "Option (A) is wrong.",
    "I would rule out option (A).", "Vitamin C is the best choice of the body.", "비타민 C가 정답입니다",
    "The wrong answer is (A), and (B) is the one above it.", "(A)가 정답이 아닙니다. (B)는 모른다.",
]  # fmt: skip


@pytest.mark.parametrize(("body", "letter"), [*GOLDEN, *((body, None) for body in UNREADABLE)])
def test_ours_reads_the_last_answer_of_the_body_or_none_rather_than_guess(body: str, letter: str | None) -> None:
    assert read(ABCD, "The answer is (A).", body).last_in_body == letter


@pytest.mark.parametrize(
    ("letters", "body", "letter"),
    [
        (A_TO_J, "The answer is (J).", "J"),
        (A_TO_J, "answer: j", "J"),
        (A_TO_J, r"\boxed{I}", "I"),
        (A_TO_J, "Answer: I because it rains", "I"),
        (A_TO_J, "Answer: I", "I"),
        (A_TO_J, "**Answer: I**\n\n(A) is too small.", "I"),
        (ABCD, "Answer: I", None),
        (A_TO_J, "Answer: I think it is (H)", "H"),
        (ABCDE, "정답은 E입니다", "E"),
        (ABCDE, "The answer is (J), or so; then (E)", "E"),
        (ABCD, "The answer is (E), or so; then (D)", "D"),
        ("", "The answer is (C).", None),
    ],
)
def test_only_the_suites_own_letters_are_answers(letters: str, body: str, letter: str | None) -> None:
    assert read(letters, "", body).last_in_body == letter


@pytest.mark.parametrize(
    ("body", "strict"),
    [
        ("The answer is (C).", "C"),
        ("The answer is (c).", "C"),
        ("The answer is (C)", "C"),
        ("The answer is C", ""),
        ("The answer is C.", "C"),
        ("The answer is (C). Indeed.", "(C). Indeed"),
        ("The correct answer is (C).", None),
        ("**Answer: C**", None),
        ("The answer is (A).\nThe answer is (C).", "A"),
    ],
)
def test_strict_reads_what_lm_eval_reads(body: str, strict: str | None) -> None:
    """The figures are those of lm_eval.filters.extraction.RegexFilter 0.4.13 with the task's pattern."""
    assert read(ABCD, "", body).strict == strict


def test_what_others_read_is_a_letter_where_exact_match_takes_it_for_one() -> None:
    assert [letter_of(ABCD, said) for said in ("(C", "(c)", " C.", "a")] == ["C", "C", "C", "A"]
    others = ["[invalid]", "(C). Indeed", "", "E"]
    assert [letter_of(ABCD, said) for said in others] == others


def test_the_other_readers_fall_where_they_are_known_to_fall() -> None:
    body = "**Answer: C**. By contrast (A) is wrong."
    assert read(ABCD, "Perhaps (B)? 정답: (D)?", body) == Readings("C", None, "A", "B")
    assert read(ABCD, "정답: D? no", body).first == "D", "HRET takes the first announcement"


@pytest.mark.parametrize(
    "thoughts",
    [
        "<think>Is it (A)? (B)? No. The answer is (A).</think>\n\n", "[THINK]The answer is (A). (B)?[/THINK]",
        "<|channel>thought\nThe answer is (A). (B)\n<channel|>", "thought\nThe answer is (A). (B)\n",
        "analysisThe answer is (A). (B)assistantfinal", "<thought>The answer is (A). (B)</thought>\n",
        "<|channel|>analysis<|message|>The answer is (A). (B)<|end|><|start|>assistant<|channel|>final<|message|>",
    ],
)  # fmt: skip
def test_no_reader_but_the_trap_reads_thoughts(thoughts: str) -> None:
    """Otherwise `extractors_disagree` stops a cell that is read rightly."""
    assert read(ABCD, "", thoughts + "**C**")[:3] == ("C", None, None)
    assert read(ABCD, "", thoughts + "The answer is (C).") == Readings("C", "C", "C", "A")
    left = without_thoughts(thoughts + "Well.")
    assert left.strip() == "Well." and without_thoughts(left) == left


@pytest.mark.slow(1)
@pytest.mark.parametrize(
    "looped",
    [
        "\\boxed{", "answer is ", "<think>", "(A) or ", "not ", " ", "-", "**Answer:** ", "\n", ". ", "(", "( A",
        "(A) is ", "A, ", "정답은 A가 아니라 ", "A가 아니라 ", "A, B 중 ", "answer to ", "correct option of ",
        "\\text{", "\\text{}", "<answer>", "(A) is the correct answer: ", "D is correct. ", "(B)가 정답 ",
        "rule out ", "option ", "| A |", "'", "is the ", "[THINK]", "thought\n", "<|channel|>analysis", "if ", "? ",
        "A) ", "선택 ", "选", "students often ", "Question: ", "it is ", "\"answer\": ", "The answer is B (C) ",
    ],
)  # fmt: skip
def test_a_model_that_loops_is_read_in_no_time(looped: str) -> None:
    """A quadratic pattern took 67 s for one such answer, of four times the length."""
    said = looped * (50_000 // len(looped))
    assert read(A_TO_J, said, said + "\n\nThe answer is (C).").last_in_body in ("C", None)
    assert read(A_TO_J, said, "The answer is (C).\n\n" + said + "}" * 10_000).last_in_body in (*A_TO_J, None)
