"""Which items are asked: the same everywhere, and one clear line where they can't be had."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from configs.evals.suites import SUITES, SuiteName
from tasks.evals.data.items import Prepared, prepared
from tasks.evals.data.twins import twin
from tasks.evals.data.unavailable import DatasetUnavailable
from tests.tasks.evals.steps_of import step_of


def of_file(suite: SuiteName, path: Path, **fields: Any) -> Prepared:
    return prepared(step_of(suite, dataset=str(path), **fields), path.parent, print)


def jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def complaint(suite: SuiteName, path: Path, **fields: Any) -> str:
    with pytest.raises(DatasetUnavailable) as caught:
        of_file(suite, path, **fields)
    said = str(caught.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("suite", SUITES)
def test_a_twin_needs_nothing_and_is_asked_as_it_is(suite: SuiteName, tmp_path: Path) -> None:
    said = prepared(step_of(suite, dataset="twin", items=24), tmp_path, print)
    assert (len(said.items), said.revision, said.plain) == (24, "twin-1", True)


@pytest.mark.parametrize("suite", SUITES)
def test_the_same_records_are_the_same_items_from_every_kind_of_file(suite: SuiteName, tmp_path: Path) -> None:
    records = twin(suite)
    as_text = [
        {key: value if isinstance(value, str) else json.dumps(value) for key, value in r.items()} for r in records
    ]
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(records[0]))
        writer.writeheader()
        writer.writerows(as_text)
    (tmp_path / "a.json").write_text(json.dumps(records), encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    jsonl(tmp_path / "a.jsonl", records[::-1])
    several = [of_file(suite, tmp_path / f"a.{kind}", items=30) for kind in ("csv", "json", "parquet", "jsonl")]
    assert all(said.items == several[0].items for said in several)
    assert all(said.revision.startswith("sha256:") and not said.plain for said in several)


def test_items_follow_from_the_seed_and_fewer_are_the_first_of_more(tmp_path: Path) -> None:
    few, more, other = (
        prepared(step_of("gpqa", dataset="twin", items=n, seed=seed), tmp_path, print).items
        for n, seed in ((10, 0), (50, 0), (50, 1))
    )
    assert more[:10] == few
    assert {item.item_id for item in more} != {item.item_id for item in other}


def test_the_order_of_gpqas_choices_follows_from_the_item_alone(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", twin("gpqa"))
    by_seed = [{i.item_id: i.choices for i in of_file("gpqa", path, seed=seed).items} for seed in (0, 1)]
    assert by_seed[0] == by_seed[1]


def test_real_shapes_are_read(tmp_path: Path) -> None:
    gpqa = {"Question": "Q?", "Correct Answer": "r", **{f"Incorrect Answer {n}": f"w{n}" for n in (1, 2, 3)}}
    (item,) = of_file("gpqa", jsonl(tmp_path / "1.jsonl", [{**gpqa, "High-level domain": "Physics"}])).items
    assert item.choices["ABCD".index(item.gold)] == "r" and set(item.choices) == {"r", "w1", "w2", "w3"}
    assert (item.question, item.category) == ("Q?", "Physics")
    pro = {"question": "Q?", "options": list("klmnopqrst"), "answer": "J", "answer_index": 9, "category": "law"}
    (item,) = of_file("mmlu-pro", jsonl(tmp_path / "2.jsonl", [pro])).items
    assert (item.gold, len(item.choices), item.category) == ("J", 10, "law")
    kmmlu = {"question": "Q?", "answer": 3, "A": "1", "B": "2", "C": "3", "D": "4", "Category": "Math"}
    (item,) = of_file("kmmlu", jsonl(tmp_path / "3.jsonl", [kmmlu])).items
    assert (item.gold, item.choices) == ("C", ("1", "2", "3", "4"))
    query = {"query": "Q?\n(A) a\n(B) b\n(C) c\n(D) d\n(E) e", "answer": "(E)"}
    apart = {"question": "Q?", "A": "a", "B": "b", "C": "c", "D": "d", "E": "e", "answer": "E"}
    (one,) = of_file("hae-rae", jsonl(tmp_path / "4.jsonl", [query])).items
    (other,) = of_file("hae-rae", jsonl(tmp_path / "5.jsonl", [apart])).items
    assert one.item_id == other.item_id and one.gold == "E" and one.record["answer"] == "(E)"
    ifeval = {"key": 1, "prompt": "P", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"letter": None}]}
    (item,) = of_file("ifeval", jsonl(tmp_path / "6.jsonl", [ifeval])).items
    assert (item.gold, item.choices, item.record["kwargs"]) == ("", (), [{}])


@pytest.mark.parametrize(
    ("suite", "column", "value", "accepted"),
    [
        ("gpqa", "Correct Answer", None, "column 'Correct Answer' is missing; accepted: a text"),
        ("gpqa", "Incorrect Answer 2", " ", "column 'Incorrect Answer 2' is ' '; accepted: a text"),
        ("mmlu-pro", "answer", "E", "column 'answer' is 'E'; accepted: a letter from A to D"),
        ("mmlu-pro", "options", "gold, teal", "column 'options' is 'gold, teal'; accepted: a list of texts"),
        ("mmlu-pro", "options", ["gold"], "column 'options' is '1 options'; accepted: 2 to 10"),
        ("kmmlu", "answer", 5, "column 'answer' is '5'; accepted: a whole number from 1 to 4"),
        ("kmmlu", "answer", None, "column 'answer' is missing; accepted: a whole number from 1 to 4"),
        ("hae-rae", "answer", "gold", "column 'answer' is 'gold'; accepted: a letter from A to E"),
        ("ifeval", "kwargs", [{}], "accepted: a list of 2 objects, one per instruction"),
    ],
)
def test_a_record_of_another_shape_is_named_by_row_and_column(
    suite: SuiteName, column: str, value: object, accepted: str, tmp_path: Path
) -> None:
    records = twin(suite)[:5]
    records[3] = {**records[3], column: value}
    said = complaint(suite, jsonl(tmp_path / "a.jsonl", records))
    assert f"row 4 is not of {SUITES[suite].title}'s shape: " in said
    assert accepted in said


def test_a_file_that_cant_be_read_is_one_line(tmp_path: Path) -> None:
    assert "No such file" in complaint("gpqa", tmp_path / "none.jsonl")
    assert "accepted: hub, twin, or a file ending in .jsonl .json .csv .parquet" in complaint(
        "gpqa", tmp_path / "a.txt"
    )
    for kind in ("jsonl", "json", "parquet"):
        (tmp_path / f"a.{kind}").write_text("{oops", encoding="utf-8")
        assert f"is no {kind} file" in complaint("gpqa", tmp_path / f"a.{kind}")
    (tmp_path / "latin.csv").write_bytes("Quéstion\n".encode("latin-1"))
    assert "is no csv file" in complaint("gpqa", tmp_path / "latin.csv")
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    assert "has no records" in complaint("gpqa", tmp_path / "empty.jsonl")


def test_more_items_than_there_are_and_repeated_ones_are_named(tmp_path: Path) -> None:
    records = twin("kmmlu")[:6]
    path = jsonl(tmp_path / "a.jsonl", records)
    assert "items: 7, but" in complaint("kmmlu", path, items=7)
    assert len(of_file("kmmlu", path).items) == 6
    again = jsonl(tmp_path / "b.jsonl", [*records, records[2]])
    assert "rows 3 and 7 are the same item (1 repeats)" in complaint("kmmlu", again)


@pytest.mark.parametrize("word", ["None", "NULL", "N/A", "nan", "-"])
def test_an_option_of_a_csv_file_is_read_as_it_stands(word: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"question,A,B,C,D,answer\nWhich?,{word},1,2,3,1\n", encoding="utf-8")
    assert of_file("kmmlu", tmp_path / "a.csv").items[0].choices == (word, "1", "2", "3")


def test_records_of_a_file_that_contradict_one_another_are_named(tmp_path: Path) -> None:
    records = twin("kmmlu")[:5]
    records[3] = {**records[1], "answer": records[1]["answer"] % 4 + 1}
    letters = f"{'ABCD'[records[1]['answer'] - 1]} and {'ABCD'[records[3]['answer'] - 1]}"
    said = complaint("kmmlu", jsonl(tmp_path / "a.jsonl", records))
    assert f"rows 2 and 4 ask the same and have different right answers ({letters})" in said
    ifeval = twin("ifeval")[:3]
    ifeval[2] = {**ifeval[0], "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    assert "rows 1 and 3 ask the same" in complaint("ifeval", jsonl(tmp_path / "b.jsonl", ifeval))
