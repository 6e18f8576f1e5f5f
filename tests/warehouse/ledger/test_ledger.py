"""Commits, leases, owners, clocks and parts: what survives races, silence and death.

Known to be dead is only a process of this very machine, boot and pid namespace that is gone. Clocks that jump or
disagree make nothing take less than no time. Reading Parquet leaves no thread that may abort a process that ends.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.checkout import ROOT
from flows.terminal.regrade import regrade
from tests.graded_run import write_graded_run
from tests.warehouse.synthetic import StepWriter, close_attempt, demo_plan, write_demo_run
from warehouse.dataset.build import raw_tables
from warehouse.dataset.consolidate.inputs import Raw, take_inventory
from warehouse.dataset.snapshot import publish, read_current
from warehouse.ledger.clock import SYSTEM, iso_of
from warehouse.ledger.commits import Grading, Ledger, newest, write_regrade
from warehouse.ledger.lease import Attempt, Heartbeat, Lease, LeaseHeld, Leases, gone_attempt
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.owner import lives_here, owner_name
from warehouse.ledger.runs import run_ids
from warehouse.ledger.steps import EVAL_ITEMS, EVAL_SAMPLES, EXCHANGES
from warehouse.ledger.store import Store, StoreError
from warehouse.ledger.tables import SCHEMA_VERSION, VERDICTS, arrow_schema, decode, encode, sha256_hex
from warehouse.ledger.timed_tables import WINDOWS

NOW = "2026-11-20T12:00:00.000+00:00"

RACER = """
import sys, time
from tests.warehouse.synthetic import StepWriter, demo_plan, item
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store
from warehouse.ledger.steps import EVAL_ITEMS

ledger = Ledger(open_store(sys.argv[1]), "race")
step = StepWriter(ledger, demo_plan().cells[0].cell.cell_key, "eval-tiny", attempt=int(sys.argv[2]))
step.write(EVAL_ITEMS, [item(index, right=True) for index in range(7)])
step.judge((None, None, "ok", [], []))
print("ready", flush=True)
sys.stdin.readline()
print(step.commit(), flush=True)
"""


@pytest.mark.slow(3)
def test_two_processes_race_for_one_step_and_one_is_superseded(store: Store) -> None:
    Ledger(store, "race").write_plan(demo_plan())
    env, pipe = os.environ | {"PYTHONPATH": str(ROOT)}, subprocess.PIPE
    calls = [[sys.executable, "-c", RACER, store.url, number] for number in "12"]
    racers = [subprocess.Popen(call, cwd=ROOT, text=True, stdin=pipe, stdout=pipe, env=env) for call in calls]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert sorted(racer.communicate()[0].strip() for racer in racers) == ["committed", "superseded"]
    publish(store)
    counts = read_current(store)["n"].to_list()
    assert counts == [7, 7]  # last-letter and first-letter of one commit's items; the loser's parts do not exist


def test_a_plan_is_recorded_once(local: Store) -> None:
    ledger, plan = Ledger(local, "one"), demo_plan()
    ledger.write_plan(plan)
    ledger.write_plan(plan)
    assert ledger.plan() == plan and run_ids(local) == ["one"]
    with pytest.raises(StoreError, match="another plan"):
        ledger.write_plan(plan.model_copy(update={"concurrency": 7}))
    with pytest.raises(StoreError, match="no cell"):
        ledger.planned_cell("0" * 16)


@pytest.mark.parametrize("run_id", ["", "../up", "a/b", "-x", "x" * 81, "r1\n"])
def test_a_run_id_is_a_safe_folder_name(local: Store, run_id: str) -> None:
    with pytest.raises(StoreError, match="run id"):
        Ledger(local, run_id)


@pytest.mark.slow(3)
def test_committed_steps_come_from_one_listing(local: Store) -> None:
    plan = write_demo_run(local)
    found = Ledger(local, "demo-1").committed_steps()
    assert set(found) == {planned.cell.cell_key for planned in plan.cells}
    assert set(next(iter(found.values()))) == {"smoke", "throughput", "throughput@2", "parity", "eval-tiny"}


def test_orphan_parts_are_found_again(local: Store) -> None:
    ledger = Ledger(local, "one")
    step = StepWriter(ledger, "c" * 16, "eval-tiny")
    step.write(EVAL_ITEMS, [{"item_id": "q-1", "gold": "A"}], spent_s=0.1 + 0.2)
    step.write(VERDICTS, [{"verdict": "ok", "reasons": []}])
    [(part, rows)] = list(ledger.orphan_parts("c" * 16, "eval-tiny", EVAL_ITEMS))
    assert part == step.parts[0] and (part.attempt, part.spent_s) == (1, 0.1 + 0.2)
    assert [row["item_id"] for row in rows] == ["q-1"]
    left = ledger.orphan_parts("c" * 16, "eval-tiny", but=[part.key])
    assert [part for part, _ in left] == step.parts[1:]


@pytest.fixture
def leases(store: Store) -> Leases:
    return Leases(Ledger(store, "one"), "c" * 16, deadline_s=30)


def elsewhere(name: str) -> str:
    return f"{name}.example/0123abcd/17/4242"


def said_by(code: str, *words: str | Path, before: Sequence[str] = ()) -> str:
    argv = [*before, sys.executable, "-c", code, *words]
    return subprocess.run(argv, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True).stdout.strip()


def ended_process() -> str:
    """The name of a process of this machine that is gone."""
    return said_by("from warehouse.ledger.owner import owner_name; print(owner_name())")


def test_a_live_owner_keeps_its_cell(leases: Leases) -> None:
    mine = leases.acquire(elsewhere("a"))
    leases.beat(Heartbeat(attempt=1, phase="measuring", at=NOW))
    assert (mine.epoch, leases.current(), leases.still_mine(mine)) == (1, mine, True)
    with pytest.raises(LeaseHeld, match=r"a\.example"):
        leases.acquire(elsewhere("b"))


def test_silence_frees_a_cell_and_closes_the_attempt_as_lost(leases: Leases) -> None:
    first = leases.acquire(elsewhere("a"))
    spent = {"load_s": 30.0, "smoke_s": 5.0, "measure_s": 70.0, "at_risk_s": 20.0}
    leases.beat(Heartbeat(attempt=1, phase="measuring", at=NOW, **spent))
    leases.deadline_s = -10
    second = leases.acquire(elsewhere("b"))
    assert second.epoch == 2 and not leases.still_mine(first)
    [lost] = leases.attempts()
    assert (lost.attempt, lost.outcome, lost.owner) == (1, "lost", elsewhere("a"))
    assert (lost.load_s, lost.smoke_s, lost.measure_s, lost.lost_s) == (30.0, 5.0, 50.0, 20.0)
    assert lost.wall_s is not None and lost.wall_s >= 0


def test_a_closed_attempt_frees_its_cell_at_once(leases: Leases) -> None:
    leases.acquire(elsewhere("a"))
    completed = Attempt(attempt=1, outcome="completed", ended_at=NOW)
    leases.close(completed)
    assert not leases.close(completed.model_copy(update={"outcome": "failed"}))
    assert leases.acquire(elsewhere("b")).epoch == 2
    assert [attempt.outcome for attempt in leases.attempts()] == ["completed"]


def test_a_dead_process_of_this_machine_frees_its_cell_at_once(leases: Leases) -> None:
    leases.acquire(ended_process())
    assert leases.acquire(owner_name()).epoch == 2
    with pytest.raises(LeaseHeld):
        leases.acquire(elsewhere("b"))


def test_a_race_for_a_lease_has_one_winner(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    leases.acquire(elsewhere("a"))
    monkeypatch.setattr(leases, "current", lambda: None)
    with pytest.raises(LeaseHeld, match="just now"):
        leases.acquire(elsewhere("b"))


def test_an_attempts_cost_follows_from_its_price_and_a_record_refuses_unknown_fields(local: Store) -> None:
    close_attempt(Ledger(local, "one"), "c" * 16)
    [attempt] = Leases(Ledger(local, "one"), "c" * 16).attempts()
    assert (attempt.wall_s, attempt.cost_usd) == (133.0, 0.0)
    with pytest.raises(ValueError, match="extra"):
        Lease.model_validate({"cell_key": "c", "epoch": 1, "owner": "o", "granted_at": NOW, "more": 1})


@pytest.mark.parametrize("name", sorted(raw_tables()))
def test_parts_come_back_as_they_were_written(name: str) -> None:
    samples = {"str": "text", "i64": 3, "f64": 0.5, "bool": True}
    samples |= {"list[str]": ["a"], "list[i64]": [1, 2], "list[f64]": [0.1]}
    table = raw_tables()[name]
    row = {column.name: samples[column.type] for column in table.columns}
    bare = {column.name: row[column.name] if column.required else None for column in table.columns}
    assert decode(encode(table, [row, bare]), "key") == [row, bare]


def test_a_parts_schema_carries_units_and_refuses_a_wrong_column_and_bytes_that_are_no_part(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(encode(WINDOWS, []))
    schema = pq.read_schema(tmp_path / "part")
    assert schema.field("wall_s").metadata[b"unit"] == b"s"
    assert schema.metadata[b"schema_version"] == str(SCHEMA_VERSION).encode()
    assert schema.names == arrow_schema(WINDOWS).names
    with pytest.raises(ValueError, match="no column 'tokens_s'"):
        encode(WINDOWS, [{"tokens_s": 1}])
    with pytest.raises(ValueError, match="required column 'run_id'"):
        encode(WINDOWS, [{"wall_s": 1.0}])
    with pytest.raises(StoreError, match="some/key"):
        decode(b"nonsense", "some/key")
    assert sha256_hex(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


READERS = {
    "decode": "from warehouse.ledger.tables import decode; read = lambda file: decode(file.read_bytes(), file.name)",
    "from_file": "from configs.evals.records import from_file; read = lambda file: from_file(str(file))",
}
"""Both ways of the product to read a file of rows."""

SCRIPT = """
import os, sys
from pathlib import Path
import pyarrow.parquet
{reader}
before = set(os.listdir("/proc/self/task"))
read(Path(sys.argv[1]))
print(len(set(os.listdir("/proc/self/task")) - before))
"""


@pytest.mark.parametrize("reader", READERS)
def test_reading_rows_starts_no_thread(tmp_path: Path, reader: str) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"item": list(range(64)), "text": ["a"] * 64}), file)
    script = SCRIPT.format(reader=READERS[reader])
    assert said_by(script, file) == "0"


PARTS = ("host", "machine", "boot", "namespace", "pid", "tick")


def changed(part: str, to: str) -> str:
    """This process's name with another word in one place."""
    parts = dict(zip(PARTS, owner_name().split("/"), strict=True))
    return "/".join((parts | {part: to}).values())


@pytest.mark.parametrize(
    ("owner", "lives"),
    [
        (owner_name(), True),
        (changed("tick", "1"), False),
        (changed("host", "another-host"), None),
        (changed("machine", "deadbeef"), None),
        (changed("boot", "deadbeef"), None),
        (changed("boot", ""), None),
        (changed("namespace", "4026532000"), None),
        (changed("namespace", ""), None),
        (elsewhere("a"), None),
        ("host/of/an/earlier/version", None),
        ("", None),
    ],
    ids=["this process", "a later process with its id", "host", "machine", "boot", "no boot", "namespace",
         "no namespace", "elsewhere", "earlier version", "nobody"],
)  # fmt: skip
def test_whether_a_process_lives_is_known_of_those_that_can_be_seen_from_here(owner: str, lives: bool | None) -> None:
    assert lives_here(owner) is lives


def test_a_process_that_ended_here_is_dead() -> None:
    assert lives_here(ended_process()) is False


@pytest.mark.skipif(
    subprocess.run(["unshare", "-rpf", "true"], capture_output=True, check=False).returncode != 0,
    reason="no user namespaces",
)
@pytest.mark.parametrize("flags", ["-rpf --mount-proc", "-rpf"])
def test_nobody_knows_from_another_pid_namespace(flags: str) -> None:
    code = f"from warehouse.ledger.owner import lives_here; print(lives_here({owner_name()!r}))"
    assert said_by(code, before=["unshare", *flags.split()]) == "None"


@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_moments_go_on_evenly_whatever_the_wall_clock_does(monkeypatch: pytest.MonkeyPatch, jump_s: int) -> None:
    before_s, wall_s = SYSTEM.now_s(), time.time()
    assert abs(before_s - wall_s) < 60, "they are the wall clock's, as it was when the process began"
    monkeypatch.setattr(time, "time", lambda: wall_s + jump_s)
    assert 0 <= SYSTEM.now_s() - before_s < 60


def test_an_attempt_is_never_shorter_than_what_its_runner_counted(local: Store) -> None:
    """Its start is by the node's clock, its end by that of the flow that found it gone."""
    leases = Leases(Ledger(local, "one"), "c" * 16)
    lease = leases.acquire("a node whose clock is an hour ahead")
    spent = {"load_s": 40.0, "smoke_s": 5.0, "measure_s": 50.0, "at_risk_s": 10.0}
    beat = Heartbeat(attempt=1, phase="measuring", at=lease.granted_at, **spent)
    ended_at = iso_of(SYSTEM.now_s() - 3600)
    assert leases.close(gone_attempt(lease, beat, Ended.SILENT, "silent", ended_at, price_usd_h=3.6))
    [attempt] = leases.attempts()
    assert (attempt.wall_s, attempt.cost_usd) == (95, pytest.approx(0.095))


class CountedStore:
    def __init__(self, store: Store) -> None:
        self.store, self.url = store, store.url
        self.gets, self.lists = list[str](), list[str]()

    def get(self, key: str) -> bytes | None:
        self.gets.append(key)
        return self.store.get(key)

    def list(self, prefix: str) -> Any:
        self.lists.append(prefix)
        return self.store.list(prefix)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def gpqa(store: Any) -> Any:
    return next(step for step in take_inventory(store, ["old"]).steps if step.commit.step == "eval-gpqa")


def test_the_dataset_is_built_from_the_newest_grading(store: Store) -> None:
    ledger = Ledger(store, "old")
    write_graded_run(ledger)
    before = gpqa(store)
    regrade(ledger, None, dry_run=False)
    after = gpqa(store)
    assert (before.commit.verdict, after.commit.verdict) == ("rejected", "suspect")
    right = []
    for step in (before, after):
        raw = Raw(store, [step])
        right.append(sum(row["correct"] for row in raw.rows(step, EVAL_SAMPLES)))
        assert len(raw.rows(step, EXCHANGES)) == len(raw.rows(step, EVAL_SAMPLES)) == 8
    assert right == [2, 6]


def test_the_highest_number_counts_and_only_for_its_tables(local: Store) -> None:
    ledger = Ledger(local, "old")
    key = write_graded_run(ledger).cell.cell_key
    (row, *_) = Raw(local, [gpqa(local)]).rows(gpqa(local), EVAL_SAMPLES)
    for number in range(11):
        tables = {EVAL_SAMPLES: [row | {"extractor_version": number + 1}]}
        write_regrade(ledger, key, "eval-gpqa", number, Grading(tables, "ok", (), number + 1), "abc")
    assert newest(ledger.keys()) == {(key, "eval-gpqa"): 11}
    step = gpqa(local)
    raw = Raw(local, [step])
    assert [row["extractor_version"] for row in raw.rows(step, EVAL_SAMPLES)] == [11]
    assert len(raw.rows(step, EXCHANGES)) == 8


def test_of_two_that_grade_the_same_at_once_one_is_told_to_start_again(store: Store) -> None:
    ledger = Ledger(store, "old")
    key = write_graded_run(ledger).cell.cell_key
    write_regrade(ledger, key, "eval-gpqa", 0, Grading({}, "ok", (), 1), None)
    with pytest.raises(StoreError, match=r"regrades/1\.json was written by somebody else meanwhile: run the same"):
        write_regrade(ledger, key, "eval-gpqa", 0, Grading({}, "suspect", (), 1), None)
    assert gpqa(store).commit.verdict == "ok"


def test_a_grading_costs_one_more_read_and_no_listing(local: Store) -> None:
    ledger = Ledger(local, "old")
    key = write_graded_run(ledger).cell.cell_key
    before, after = CountedStore(local), CountedStore(local)
    take_inventory(before, ["old"])
    regrade(ledger, None, dry_run=False)
    take_inventory(after, ["old"])
    regrades = {f"runs/old/cells/{key}/steps/{step}/regrades/1.json" for step in ("eval-gpqa", "eval-ifeval")}
    assert set(after.gets) - set(before.gets) == regrades
    assert after.lists == before.lists and len(after.gets) == len(before.gets) + len(regrades)


def test_a_steps_parts_and_commits_are_not_mistaken_for_gradings(local: Store) -> None:
    ledger = Ledger(local, "old")
    key = write_graded_run(ledger).cell.cell_key
    regrade(ledger, None, dry_run=False)
    assert ledger.committed_steps() == {key: ["eval-gpqa", "eval-ifeval", "eval-tiny"]}
    assert len(list(ledger.orphan_parts(key, "eval-gpqa", EVAL_SAMPLES))) == 1
