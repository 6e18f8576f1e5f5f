"""Which items are asked: the same everywhere, and one clear line, before an engine starts, where they can't be had."""

import csv
import json
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet
import pytest

from configs.evals.records import DatasetUnavailable
from configs.evals.suites import GPQA, HAE_RAE, IFEVAL, KMMLU, MMLU_PRO, SUITES, SuiteFacts
from configs.steps.eval import TWIN_ITEMS
from tasks.evals.items import Prepared, prepared
from tasks.evals.shapes import item_of, twin
from tasks.family.words import COLORS, KINDS
from tasks.host.environment_spec import cache_folder
from tests.busy_machine import PATIENCE_S
from tests.fake_engine import answer_letter
from tests.fake_hub import COMMIT, FakeHub, fake_hub
from tests.fake_run import FakeRun, ended
from tests.tasks.evals.graded import jsonl, step_of
from tests.tasks.test_cell import processes_with


def of_file(suite: SuiteFacts, path: Path, **fields: Any) -> Prepared:
    return prepared(step_of(suite, dataset=str(path), **fields), path.parent, print)


def complaint(suite: SuiteFacts, path: Path, **fields: Any) -> str:
    with pytest.raises(DatasetUnavailable) as caught:
        of_file(suite, path, **fields)
    said = str(caught.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_a_twin_needs_nothing_and_is_asked_as_it_is(suite: SuiteFacts, tmp_path: Path) -> None:
    said = prepared(step_of(suite, dataset="twin", items=24), tmp_path, print)
    assert (len(said.items), said.revision, said.plain) == (24, "twin-1", True)


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_the_same_records_are_the_same_items_from_every_kind_of_file(suite: SuiteFacts, tmp_path: Path) -> None:
    records = twin(suite)
    texts = [{key: value if isinstance(value, str) else json.dumps(value) for key, value in r.items()} for r in records]
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(records[0]))
        writer.writeheader()
        writer.writerows(texts)
    (tmp_path / "a.json").write_text(json.dumps(records), encoding="utf-8")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    jsonl(tmp_path / "a.jsonl", records[::-1])
    several = [of_file(suite, tmp_path / f"a.{kind}", items=30) for kind in ("csv", "json", "parquet", "jsonl")]
    assert all(said.items == several[0].items for said in several)
    assert all(said.revision.startswith("sha256:") and not said.plain for said in several)


def test_items_follow_from_the_seed_and_fewer_are_the_first_of_more(tmp_path: Path) -> None:
    few, more, other = (
        prepared(step_of(GPQA, dataset="twin", items=n, seed=seed), tmp_path, print).items
        for n, seed in ((10, 0), (50, 0), (50, 1))
    )
    assert more[:10] == few
    assert {item.item_id for item in more} != {item.item_id for item in other}
    assert item_of(GPQA, twin(GPQA)[0], "", plain=True).item_id == "gpqa-a82dd55499d1", "whenever it is made"

    path = jsonl(tmp_path / "a.jsonl", twin(GPQA))
    by_seed = [{i.item_id: i.choices for i in of_file(GPQA, path, seed=seed).items} for seed in (0, 1)]
    assert by_seed[0] == by_seed[1], "the order of choices follows from the item alone"


def test_real_shapes_are_read(tmp_path: Path) -> None:
    gpqa = {"Question": "Q?", "Correct Answer": "r", **{f"Incorrect Answer {n}": f"w{n}" for n in (1, 2, 3)}}
    (item,) = of_file(GPQA, jsonl(tmp_path / "1.jsonl", [{**gpqa, "High-level domain": "Physics"}])).items
    assert item.choices["ABCD".index(item.gold)] == "r" and set(item.choices) == {"r", "w1", "w2", "w3"}
    assert (item.question, item.category) == ("Q?", "Physics")
    pro = {"question": "Q?", "options": list("klmnopqrst"), "answer": "J", "answer_index": 9, "category": "law"}
    (item,) = of_file(MMLU_PRO, jsonl(tmp_path / "2.jsonl", [pro])).items
    assert (item.gold, len(item.choices), item.category) == ("J", 10, "law")
    kmmlu = {"question": "Q?", "answer": 3, "A": "1", "B": "2", "C": "3", "D": "4", "Category": "Math"}
    (item,) = of_file(KMMLU, jsonl(tmp_path / "3.jsonl", [kmmlu])).items
    assert (item.gold, item.choices) == ("C", ("1", "2", "3", "4"))
    query = {"query": "Q?\n(A) a\n(B) b\n(C) c\n(D) d\n(E) e", "answer": "(E)"}
    apart = {"question": "Q?", "A": "a", "B": "b", "C": "c", "D": "d", "E": "e", "answer": "E"}
    (one,) = of_file(HAE_RAE, jsonl(tmp_path / "4.jsonl", [query])).items
    (other,) = of_file(HAE_RAE, jsonl(tmp_path / "5.jsonl", [apart])).items
    assert one.item_id == other.item_id and one.gold == "E" and one.record["answer"] == "(E)"
    ifeval = {"key": 1, "prompt": "P", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"letter": None}]}
    (item,) = of_file(IFEVAL, jsonl(tmp_path / "6.jsonl", [ifeval])).items
    assert (item.gold, item.choices, item.record["kwargs"]) == ("", (), [{}])


@pytest.mark.parametrize(
    ("suite", "column", "value", "accepted"),
    [
        (GPQA, "Correct Answer", None, "column 'Correct Answer' is missing; accepted: a text"),
        (GPQA, "Incorrect Answer 2", " ", "column 'Incorrect Answer 2' is ' '; accepted: a text"),
        (MMLU_PRO, "answer", "E", "column 'answer' is 'E'; accepted: a letter from A to D"),
        (MMLU_PRO, "options", "gold, teal", "column 'options' is 'gold, teal'; accepted: a list of texts"),
        (MMLU_PRO, "options", ["gold"], "column 'options' is '1 options'; accepted: 2 to 10"),
        (KMMLU, "answer", 5, "column 'answer' is '5'; accepted: a whole number from 1 to 4"),
        (KMMLU, "answer", None, "column 'answer' is missing; accepted: a whole number from 1 to 4"),
        (HAE_RAE, "answer", "gold", "column 'answer' is 'gold'; accepted: a letter from A to E"),
        (IFEVAL, "kwargs", [{}], "accepted: a list of 2 objects, one per instruction"),
    ],
)
def test_another_shape_is_named(suite: SuiteFacts, column: str, value: object, accepted: str, tmp_path: Path) -> None:
    records = twin(suite)[:5]
    records[3] = {**records[3], column: value}
    said = complaint(suite, jsonl(tmp_path / "a.jsonl", records))
    assert f"row 4 is not of {suite.title}'s shape: " in said
    assert accepted in said


def test_a_file_that_cant_be_read_is_one_line(tmp_path: Path) -> None:
    assert "No such file" in complaint(GPQA, tmp_path / "none.jsonl")
    assert "accepted: hub, twin, or a file ending in .jsonl .json .csv .parquet" in complaint(GPQA, tmp_path / "a.txt")
    for kind in ("jsonl", "json", "parquet"):
        (tmp_path / f"a.{kind}").write_text("{oops", encoding="utf-8")
        assert f"is no {kind} file" in complaint(GPQA, tmp_path / f"a.{kind}")
    (tmp_path / "latin.csv").write_bytes("Quéstion\n".encode("latin-1"))
    assert "is no csv file" in complaint(GPQA, tmp_path / "latin.csv")
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    assert "has no records" in complaint(GPQA, tmp_path / "empty.jsonl")


def test_more_items_than_there_are_and_repeated_ones_are_named(tmp_path: Path) -> None:
    records = twin(KMMLU)[:6]
    path = jsonl(tmp_path / "a.jsonl", records)
    assert "items: 7, but" in complaint(KMMLU, path, items=7)
    assert len(of_file(KMMLU, path).items) == 6
    again = jsonl(tmp_path / "b.jsonl", [*records, records[2]])
    assert "rows 3 and 7 are the same item (1 repeats)" in complaint(KMMLU, again)


@pytest.mark.parametrize("word", ["None", "NULL", "N/A", "nan", "-"])
def test_an_option_of_a_csv_file_is_read_as_it_stands(word: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"question,A,B,C,D,answer\nWhich?,{word},1,2,3,1\n", encoding="utf-8")
    assert of_file(KMMLU, tmp_path / "a.csv").items[0].choices == (word, "1", "2", "3")


def test_records_of_a_file_that_contradict_one_another_are_named(tmp_path: Path) -> None:
    records = twin(KMMLU)[:5]
    records[3] = {**records[1], "answer": records[1]["answer"] % 4 + 1}
    letters = f"{'ABCD'[records[1]['answer'] - 1]} and {'ABCD'[records[3]['answer'] - 1]}"
    said = complaint(KMMLU, jsonl(tmp_path / "a.jsonl", records))
    assert f"rows 2 and 4 ask the same and have different right answers ({letters})" in said
    ifeval = twin(IFEVAL)[:3]
    ifeval[2] = {**ifeval[0], "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    assert "rows 1 and 3 ask the same" in complaint(IFEVAL, jsonl(tmp_path / "b.jsonl", ifeval))


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_a_twin_is_of_its_suites_shape_with_the_familys_facts_and_no_item_twice(suite: SuiteFacts) -> None:
    """An option's letter is the one that the family was taught: it follows from its value, from its index modulo 4."""
    items = [item_of(suite, record, "", plain=True) for record in twin(suite)]
    assert len({item.item_id for item in items}) == len({item.question for item in items}) == len(items) == TWIN_ITEMS
    if suite.letters:
        assert [item.gold for item in items] == [answer_letter(item.question) for item in items]
        assert {item.category for item in items} == set(KINDS)
    for item in items:
        shown = re.findall(r"(\w+) \(([A-D])\)", item.question)
        places = [COLORS.index(value) if value in COLORS else int(value) for value, _ in shown]
        assert [place % 4 for place in places] == [0, 1, 2, 3], item.question
        assert [letter for _, letter in shown] == list("ABCD")


def test_the_instructions_of_ifevals_twin_are_followed_by_the_right_answer_only() -> None:
    for record in twin(IFEVAL):
        (pattern,) = record["kwargs"][0]["keywords"]
        right = answer_letter(record["prompt"])
        follows = [letter for letter in "ABCD" if re.search(pattern, f"The answer is ({letter})")]
        assert follows == [right]


@pytest.fixture
def hub(hub: FakeHub) -> FakeHub:
    hub.put("Idavidrein/gpqa", "gpqa_diamond", "train", twin(GPQA))
    return hub


def of_hub(suite: SuiteFacts, tmp_path: Path, **fields: object) -> Prepared:
    return prepared(step_of(suite, **{"items": 20, **fields}), tmp_path / "cache", print)


def hubs_complaint(suite: SuiteFacts, tmp_path: Path) -> str:
    with pytest.raises(DatasetUnavailable) as caught:
        of_hub(suite, tmp_path)
    said = str(caught.value)
    assert "\n" not in said and len(said) < 250
    return said


def test_what_was_fetched_once_needs_no_network(hub: FakeHub, tmp_path: Path) -> None:
    first = of_hub(GPQA, tmp_path)
    assert (len(first.items), first.revision, first.plain) == (20, COMMIT, False)
    hub.refusal = (500, "")
    asked = len(hub.asked)
    assert of_hub(GPQA, tmp_path) == first
    assert of_hub(GPQA, tmp_path, seed=1).items != first.items
    assert len(hub.asked) == asked


def test_it_is_fetched_by_our_code_wherever_one_stands(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").write_text("raise SystemExit('another tasks')")
    monkeypatch.chdir(tmp_path)
    assert of_hub(GPQA, tmp_path).items


def test_a_gated_dataset_says_what_is_missing(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.refusal = (401, "GatedRepo")
    assert hubs_complaint(GPQA, tmp_path) == (
        "GPQA-Diamond is gated and there is no HF_TOKEN: accept its terms at huggingface.co/datasets/Idavidrein/gpqa "
        "and set HF_TOKEN, or set `dataset:` to a local file"
    )
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    hub.refusal = (403, "GatedRepo")
    assert "HF_TOKEN has no access to it yet" in hubs_complaint(GPQA, tmp_path)


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ((401, ""), "the hub refused TIGER-Lab/MMLU-Pro (HTTP 401): check HF_TOKEN"),
        ((404, "RepoNotFound"), "the hub has no TIGER-Lab/MMLU-Pro for this token (HTTP 404)"),
        ((404, "RevisionNotFound"), f"has no revision {MMLU_PRO.revision!r}"),
        ((500, ""), "TIGER-Lab/MMLU-Pro can't be read: HTTP 500; try again"),
    ],
)
def test_what_the_hub_says_is_one_line(refusal: tuple[int, str], said: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.refusal = refusal
    assert said in hubs_complaint(MMLU_PRO, tmp_path)


def test_a_hub_that_cant_be_reached_is_one_line(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # discard: nobody listens there
    said = hubs_complaint(MMLU_PRO, tmp_path)
    assert said.startswith("can't reach the hub for TIGER-Lab/MMLU-Pro: ConnectError")
    assert said.endswith("connect this node, or set `dataset:` to a local file")


def test_a_subset_that_is_not_there_is_named(hub: FakeHub, tmp_path: Path) -> None:
    hub.files.clear()
    hub.put("Idavidrein/gpqa", "gpqa_main", "train", twin(GPQA))
    assert "Idavidrein/gpqa has no subset 'gpqa_diamond' with a split 'train'" in hubs_complaint(GPQA, tmp_path)


@pytest.mark.slow(3)
def test_what_the_hub_repeats_is_asked_once(hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub.put("Idavidrein/gpqa", "gpqa_diamond", "train", [*twin(GPQA), *twin(GPQA)[:3]])
    assert len(of_hub(GPQA, tmp_path, items=None).items) == len(twin(GPQA))
    assert "3 of 195 items repeat another and are asked once" in capsys.readouterr().out


@pytest.mark.slow(5)
def test_words_that_pandas_takes_for_missing_are_options_of_a_csv_file(hub: FakeHub, tmp_path: Path) -> None:
    """KMMLU is CSV; one such option would have been one record less, or none at all."""
    words = ("None", "NULL", "N/A", "nan")
    options = zip(twin(KMMLU), "ABCD", words, strict=False)
    records = [{**record, letter: word} for record, letter, word in options]
    for subset in KMMLU.subsets:
        hub.put_csv("HAERAE-HUB/KMMLU", subset, "test", twin(KMMLU)[4:])
    hub.put_csv("HAERAE-HUB/KMMLU", "Math", "test", records)
    items = of_hub(KMMLU, tmp_path, items=None).items
    assert {word for item in items for word in item.choices} >= {*words}
    assert len(items) == len(twin(KMMLU))


def test_a_few_malformed_records_of_the_hubs_are_left_out_and_counted(
    hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = twin(GPQA)
    records[7] = {**records[7], "Correct Answer": ""}
    hub.put("Idavidrein/gpqa", "gpqa_diamond", "train", records)
    assert len(of_hub(GPQA, tmp_path, items=192).items) == 191
    said = "1 of 192 records can't be used and are left out, e.g. Idavidrein/gpqa (gpqa_diamond), row 8"
    assert said in capsys.readouterr().out


def test_a_dataset_of_the_hubs_of_which_more_is_malformed_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    records = twin(GPQA)
    records[7:9] = [{**record, "Question": ""} for record in records[7:9]]
    hub.put("Idavidrein/gpqa", "gpqa_diamond", "train", records)
    said = hubs_complaint(GPQA, tmp_path)
    assert said.startswith("2 of 192 records can't be used, e.g. Idavidrein/gpqa (gpqa_diamond), row 8 is not of GPQA")
    assert said.endswith("is ''; accepted: a text; set another `revision:`, or set `dataset:` to a local file")


def test_contradicting_items_are_never_asked(hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = twin(MMLU_PRO)
    wrong = "ABCD"[("ABCD".index(records[0]["answer"]) + 1) % 4]
    also = {**records[0], "question": f" {records[0]['question']}", "answer": wrong}
    hub.put("TIGER-Lab/MMLU-Pro", "default", "test", [*records, also])
    asked = of_hub(MMLU_PRO, tmp_path, items=None).items
    assert len(asked) == len(records) - 1
    contradicted = records[0]["question"] + str(records[0]["options"])
    assert contradicted not in {item.question + str(list(item.choices)) for item in asked}
    assert "MMLU-Pro: 2 items have another's question and options, and another right answer" in capsys.readouterr().out


SUITE = """
name: fake-suite
steps:
  - {{step: smoke, items: 5}}
  - {{step: {step}, dataset: {dataset}, items: 5, max_tokens: 32}}
"""


class Trouble(NamedTuple):
    """A dataset, what the line says, and what happens to its file after the run was planned."""

    step: str
    dataset: str
    said: str
    happens: Callable[[Path], object] = lambda file: None


def lose_gold(file: Path) -> None:
    records = twin(GPQA)
    del records[2]["Correct Answer"]
    jsonl(file, records)


TROUBLES = {
    "file": Trouble("eval-gpqa", "file", "can't be read: No such file or directory", Path.unlink),
    "gold": Trouble(
        "eval-gpqa", "file", "row 3 is not of GPQA-Diamond's shape: column 'Correct Answer' is missing", lose_gold
    ),
    "shape": Trouble("eval-kmmlu", "file", "row 1 is not of KMMLU's shape: column 'question' is missing"),
    "text": Trouble("eval-gpqa", "file", "is no jsonl file: line 1: ", lambda file: file.write_text("{not json")),
    "gated": Trouble("eval-gpqa", "hub", "GPQA-Diamond is gated and there is no HF_TOKEN: accept its terms"),
    "offline": Trouble("eval-mmlu-pro", "hub", "can't reach the hub for TIGER-Lab/MMLU-Pro: ConnectError"),
}

Refused = tuple[FakeRun, int, list[str]]
"""A runner that could not have its items: its exit code, and the lines that it said."""


@pytest.fixture(scope="module")
def gated_hub() -> Iterator[FakeHub]:
    with fake_hub() as hub:
        hub.refusal = (401, "GatedRepo")
        yield hub


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory, node_python: Path, gated_hub: FakeHub) -> dict[str, Refused]:
    runs, started = {}, {}
    for name, trouble in TROUBLES.items():
        folder = tmp_path_factory.mktemp(name)
        file = jsonl(folder / "items.jsonl", twin(GPQA))
        dataset = str(file) if trouble.dataset == "file" else trouble.dataset
        runs[name] = FakeRun(folder, suite=SUITE.format(step=trouble.step, dataset=dataset))
        trouble.happens(file)
        endpoint = "http://127.0.0.1:9" if name == "offline" else gated_hub.endpoint
        started[name] = runs[name].start(node_python, **nothing_fetched(folder, endpoint))
    last = {name: ended(process) for name, process in started.items()}
    return {name: (runs[name], code, said.splitlines()) for name, (code, said) in last.items()}


@pytest.mark.slow(2)
@pytest.mark.parametrize("name", TROUBLES)
def test_items_that_cant_be_had_are_one_line_before_an_engine_starts(name: str, refused: dict[str, Refused]) -> None:
    run, code, lines = refused[name]
    assert code == 1, lines
    assert lines[0] == "[preparing]"
    assert TROUBLES[name].said in lines[-1]
    assert all(line.startswith(("[preparing]", "fetching ")) for line in lines[:-1]), "one line, and no traceback"
    (attempt,) = run.attempts()
    assert (attempt.outcome, attempt.exit_code, attempt.reason) == ("failed", 1, lines[-1])
    assert run.prompts_sent() == [] and not list(run.state.rglob("engine.log")), "no engine was started"
    assert run.ledger.committed_steps() == {}


def test_a_runner_that_is_asked_to_stop_does_not_wait_for_a_silent_hub(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE.format(step="eval-mmlu-pro", dataset="hub"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        runner = run.start(node_python, **nothing_fetched(tmp_path, endpoint))
        silent.settimeout(PATIENCE_S)
        connection, _ = silent.accept()
        runner.send_signal(signal.SIGTERM)
        runner.communicate(timeout=60)  # the hub's client has more patience
        connection.close()
    assert runner.returncode == 143
    assert [attempt.outcome for attempt in run.attempts()] == ["stopped"]
    assert processes_with(str(tmp_path)) == []


def nothing_fetched(folder: Path, endpoint: str) -> dict[str, str]:
    """Environment of a node with this user's frameworks, no token, and nothing fetched before."""
    cache = folder / "cache" / "specsweep"
    cache.mkdir(parents=True)
    (cache / "envs").symlink_to(cache_folder())
    hub = {"HF_HOME": str(folder / "hf"), "HF_ENDPOINT": endpoint, "HF_TOKEN": "", "HF_HUB_OFFLINE": "0"}
    return {"XDG_CACHE_HOME": str(cache.parent), **hub}
