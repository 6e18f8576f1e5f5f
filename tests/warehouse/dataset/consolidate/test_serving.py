"""Speed and accuracy of the same server: command lines compared without what differs by nature."""

from __future__ import annotations

import pytest

from configs.steps.throughput import Condition
from tests.warehouse.graded import GPQA, Graded, answers
from tests.warehouse.synthetic import demo_plan, item, only, window
from warehouse.dataset.consolidate.comparable import arguments, differences
from warehouse.ledger.steps import EVAL_ITEMS
from warehouse.ledger.store import Store
from warehouse.ledger.timed_tables import WINDOWS

SHORT = Condition(name="short c=1", context_tokens=64, output_tokens=100)

TIMED = (
    "/opt/env/bin/vllm serve org/model --served-model-name m --host 127.0.0.1 --port 8001 --max-model-len 16384 "
    """--no-enable-prefix-caching --speculative-config '{"method": "mtp", "model": "/cache/a/draft", "k": 4}'"""
)


def test_ports_and_folders_are_no_difference() -> None:
    elsewhere = TIMED.replace("8001", "9999").replace("/opt/env", "/root/.cache/env").replace("/cache/a", "/mnt/b")
    assert differences({"argv": TIMED}, {"argv": elsewhere}) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("16384", "32768", "--max-model-len 32768 (there 16384)"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching", "--enable-prefix-caching given (there not given)"),
        ("/cache/a/draft", "/cache/a/other", "--speculative-config"),
        ('"k": 4', '"k": 2', "--speculative-config"),
        ("org/model", "org/quantized", "command vllm serve org/quantized (there vllm serve org/model)"),
        ("--port 8001", "--port 8001 --max-num-seqs=8", "--max-num-seqs 8 (there not given)"),
    ],
)
def test_what_changes_answers_is_a_difference(old: str, new: str, said: str) -> None:
    found = differences({"argv": TIMED.replace(old, new)}, {"argv": TIMED})
    assert any(sentence.startswith(said) for sentence in found), found


def test_versions_count_where_both_are_known() -> None:
    one = {"argv": TIMED, "engine_version": "0.32.0", "model_revision": "a", "draft_revision": None}
    assert differences(one, one | {"engine_version": None, "draft_revision": "b"}) == []
    assert differences(one, one | {"model_revision": "b"}) == ["model_revision a (there b)"]
    assert differences({}, one) == [], "an old version recorded nothing"


def test_a_command_line_that_is_no_json_is_compared_as_it_is() -> None:
    assert arguments("vllm serve m --override {oops")["--override"] == "{oops"


def test_graded_on_another_server_than_timed_is_suspect_and_not_compared(local: Store) -> None:
    run = Graded(local, GPQA)
    run.answered("ar", None, answers(50, range(40)))
    run.answered("mtp", 4, answers(50, range(40)), argv=TIMED.replace("16384", "32768"))
    tiny = run.step("eval-tiny", "mtp", 4)
    tiny.write(EVAL_ITEMS, [item(0, right=True)])
    tiny.provenance(argv=TIMED)
    tiny.commit()
    speed = run.step("throughput", "mtp", 4)
    speed.write(WINDOWS, [window(SHORT, 0, 100.0)])
    speed.provenance(argv=TIMED)
    speed.commit()
    built = run.built()
    row = only(built.results, step="eval-gpqa", technique="mtp", extractor="last-in-body")
    assert (row["verdict"], row["reasons"]) == ("suspect", ["argv_differs"])
    assert row["details"] == [
        "served unlike step 'throughput', which measured the speed: --max-model-len 32768 (there 16384)"
    ]
    assert only(built.results, step="eval-tiny", extractor="last-letter")["verdict"] == "ok"
    assert built.pairs == []


def test_cells_that_were_served_differently_are_compared_and_it_is_said(local: Store) -> None:
    cells = []
    for planned in demo_plan().cells:
        longer = planned.cell.serving.model_copy(update={"max_model_len": 4096, "max_num_seqs": 2})
        serving = planned.cell.serving if planned.cell.technique.is_baseline else longer
        cells.append(planned.model_copy(update={"cell": planned.cell.model_copy(update={"serving": serving})}))
    run = Graded(local, GPQA, cells=cells)
    run.answered("ar", None, answers(50, range(40)))
    run.answered("mtp", 4, answers(50, range(40)))
    assert only(run.built().pairs)["served_differently"] == ["max_model_len", "max_num_seqs"]


def test_the_engine_of_a_control_is_not_held_against_the_cells_own(local: Store) -> None:
    run = Graded(local, GPQA)
    for name, argv in (("throughput", TIMED), ("throughput@control-1", "vllm serve org/model --max-model-len 16384")):
        timed = run.step(name, "mtp", 4)
        timed.write(WINDOWS, [window(SHORT, 0, 100.0)])
        timed.provenance(argv=argv)
        timed.commit()
    run.answered("mtp", 4, answers(50, range(40)), argv=TIMED)
    assert only(run.built().results, step="eval-gpqa", extractor="last-in-body")["reasons"] == []
