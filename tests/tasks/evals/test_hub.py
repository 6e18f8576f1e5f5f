"""Items from the hub, through the real `datasets` package, against a fake hub on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.evals.records import DatasetUnavailable
from configs.evals.suites import GPQA, KMMLU, MMLU_PRO, SuiteFacts
from tasks.evals.items import Prepared, prepared
from tasks.evals.shapes import twin
from tasks.host.environments import ensure
from tests.fake_hub import COMMIT, FakeHub, fake_hub
from tests.tasks.evals.graded import step_of


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    ensure("lm-eval")
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with fake_hub() as hub:
        hub.put("Idavidrein/gpqa", "gpqa_diamond", "train", twin(GPQA))
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


def of_hub(suite: SuiteFacts, tmp_path: Path, **fields: object) -> Prepared:
    return prepared(step_of(suite, items=20, **fields), tmp_path / "cache", print)


def complaint(suite: SuiteFacts, tmp_path: Path) -> str:
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


def test_a_gated_dataset_says_which_token_is_missing(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.refusal = (401, "GatedRepo")
    assert complaint(GPQA, tmp_path) == (
        "GPQA-Diamond is gated and there is no HF_TOKEN: accept its terms at huggingface.co/datasets/Idavidrein/gpqa "
        "and set HF_TOKEN, or set `dataset:` to a local file"
    )
    monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    hub.refusal = (403, "GatedRepo")
    assert "HF_TOKEN has no access to it yet" in complaint(GPQA, tmp_path)


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
    assert said in complaint(MMLU_PRO, tmp_path)


def test_a_hub_that_cant_be_reached_is_one_line(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # discard: nobody listens there
    said = complaint(MMLU_PRO, tmp_path)
    assert said.startswith("can't reach the hub for TIGER-Lab/MMLU-Pro: ConnectError")
    assert said.endswith("connect this node, or set `dataset:` to a local file")


def test_a_subset_that_is_not_there_is_named(hub: FakeHub, tmp_path: Path) -> None:
    hub.files.clear()
    hub.put("Idavidrein/gpqa", "gpqa_main", "train", twin(GPQA))
    assert "Idavidrein/gpqa has no subset 'gpqa_diamond' with a split 'train'" in complaint(GPQA, tmp_path)


def test_what_the_hub_itself_repeats_is_asked_once(
    hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.put("Idavidrein/gpqa", "gpqa_diamond", "train", [*twin(GPQA), *twin(GPQA)[:3]])
    said = prepared(step_of(GPQA), tmp_path / "cache", print)
    assert len(said.items) == len(twin(GPQA))
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
    items = prepared(step_of(KMMLU), tmp_path / "cache", print).items
    assert {word for item in items for word in item.choices} >= {*words}
    assert len(items) == len(twin(KMMLU))


def test_a_few_malformed_records_of_the_hubs_are_left_out_and_counted(
    hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = twin(GPQA)
    records[7] = {**records[7], "Correct Answer": ""}
    hub.put("Idavidrein/gpqa", "gpqa_diamond", "train", records)
    assert len(prepared(step_of(GPQA, items=192), tmp_path / "1", print).items) == 191
    assert "1 of 192 records can't be used and are left out, e.g. Idavidrein/gpqa (gpqa_diamond), row 8" in (
        capsys.readouterr().out
    )


def test_a_dataset_of_the_hubs_of_which_more_is_malformed_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    records = twin(GPQA)
    records[7:9] = [{**record, "Question": ""} for record in records[7:9]]
    hub.put("Idavidrein/gpqa", "gpqa_diamond", "train", records)
    said = complaint(GPQA, tmp_path)
    assert said.startswith("2 of 192 records can't be used, e.g. Idavidrein/gpqa (gpqa_diamond), row 8 is not of GPQA")
    assert said.endswith("is ''; accepted: a text; set another `revision:`, or set `dataset:` to a local file")


def test_items_of_the_hubs_that_contradict_one_another_are_never_asked(
    hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = twin(MMLU_PRO)
    wrong = "ABCD"[("ABCD".index(records[0]["answer"]) + 1) % 4]
    also = {**records[0], "question": f" {records[0]['question']}", "answer": wrong}
    hub.put("TIGER-Lab/MMLU-Pro", "default", "test", [*records, also])
    asked = prepared(step_of(MMLU_PRO), tmp_path / "cache", print).items
    assert len(asked) == len(records) - 1
    assert records[0]["question"] + str(records[0]["options"]) not in {
        item.question + str(list(item.choices)) for item in asked
    }
    assert "MMLU-Pro: 2 items have another's question and options, and another right answer" in capsys.readouterr().out
