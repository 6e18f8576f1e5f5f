"""Records as the real datasets have them: white space, LaTeX, entities, braces. All questions are made up."""

from typing import Any

Record = dict[str, Any]


def _gpqa(question: str, *answers: str) -> Record:
    wrong = {f"Incorrect Answer {number}": text for number, text in enumerate(answers[1:], 1)}
    return {"Question": question, "Correct Answer": answers[0], **wrong, "High-level domain": "Physics"}


def _pro(question: str, *options: str) -> Record:
    return {"question": question, "options": list(options), "answer": "B", "answer_index": 1, "category": "law"}


def _kmmlu(question: str, a: str, b: str, c: str, d: str) -> Record:
    return {"question": question, "answer": 2, "A": a, "B": b, "C": c, "D": d, "Category": "Math"}


def _ifeval(key: int, prompt: str) -> Record:
    return {"key": key, "prompt": prompt, "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}


RECORDS: dict[str, list[Record]] = {
    "gpqa": [
        _gpqa("How far does it go?\n", "3.2 m\n", " 4.2 m", "5.2  m", "6 m "),
        _gpqa(
            "\n\nTake $\\frac{1}{2} m v^2 = {E}$ &amp; {{find}} {% v %}\t?\r\n",
            *("\\sqrt{2E/m}\n", "<b>v</b>", "{v}", "$v$"),
        ),
        _gpqa("What does [title] mean?  \u00a0", "a [title] b", "#1 {{x}}", "#2   \u2009wide", "NULL"),
    ],
    "mmlu-pro": [
        _pro("Which is right? \n", " one", "two\n", "three  3"),
        _pro(
            "  {x} &lt; {{y}} \\(z\\)\r\n\r\nWhy",
            *("N/A", "None of {these}", "\tnan", "*", "*", "", "7", "8", "9", "10"),
        ),
    ],
    "mmlu": [
        {"question": " Why?\n", "choices": [" a", "b  c", "{{d}}", "N/A"], "answer": 3, "subject": "law"},
        {"question": "Who {is} it?\u00a0", "choices": ["1", "2", "3", "$4$"], "answer": 0, "subject": ""},
    ],
    "ifeval": [
        _ifeval(1, "  Write a poem.\n\n"),
        _ifeval(2, "Repeat {this} {{word}} &quot;exactly&quot;\r\nas {% it %} stands\u00a0\u3000"),
        _ifeval(3, "12"),
    ],
    "hae-rae": [
        {"query": "다음 중 옳은 것은?\n(A) 하나 (B) 둘 (C) 셋 (D) 넷 (E) 다섯\n### 정답:", "answer": "(B)"},
        {"query": "\n  글 {글}.\t\n### 보기:\n(A) 1\n(B) 2\n(C) 3\n(D) 4\n(E) 5\n\n### 정답 \n", "answer": "C"},
        {"query": "### 정답\n무엇인가 {{a}} &amp; ?\u3000(A) 가  (B) 나", "answer": " (A) "},
        {"query": "표준어는? (A) 가 (B) 나 (C) 다 (D) 라 (E) 마", "answer": "(E)"},
    ],
    "kmmlu": [
        _kmmlu(" 다음 {식} $x^2$ 의 값은? \n### 정답", " 1", "2 ", "3\n", "None"),
        _kmmlu("보기에서 고르시오.\r\n(가) &lt; (나)\u3000", "NULL", "N/A", "{{a}}", "0.5"),
    ],
}  # fmt: skip
