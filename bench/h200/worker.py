"""Measures the cells of the runs that were packed, one after another, until the time is over; `work.sh` starts it.

A cell whose bracket would be cut by the end is not begun: its controls must share its machine. What a cell finished
when it is asked to stop is kept, and the next lease continues from there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from configs.schema import PlannedCell
from tasks.guards.steadiness import other_gpu
from tasks.place import gpu
from tasks.runner import LOG_TAIL_LINES, CellRejected, todo
from warehouse.ledger.commits import Ledger
from warehouse.ledger.lease import Lease, Leases, gone_attempt
from warehouse.ledger.outcomes import Ended, ended_with
from warehouse.ledger.owner import lives_here, owner_name
from warehouse.ledger.store import Store, open_store

STOP_S = 60.0  # a runner that is asked to stop flushes what it has and ends its engine within this time


def cells_left(store: Store, runs: list[str], words: list[str]) -> Iterator[tuple[str, PlannedCell, int]]:
    """Runs, their cells in order and how many engine starts each still needs; other cards' runs are left out."""
    card = gpu.name_here()
    for run_id, planned in chosen(store, runs, words):
        if (other := other_gpu(planned.gpu, card)) is not None:
            say(f"{run_id} {planned.cell.label}: {other.sentence}")
            continue
        try:
            starts = todo(Ledger(store, run_id), planned)
        except CellRejected as error:
            say(f"{planned.cell.label}: {error}")
            continue
        if starts:
            yield run_id, planned, len(starts)


def chosen(store: Store, runs: list[str], words: list[str]) -> Iterator[tuple[str, PlannedCell]]:
    """Cells that a word names, in the order of the words; without words all, as their plans have them."""
    cells = [(run_id, planned) for run_id in runs for planned in Ledger(store, run_id).plan().cells]
    for word in words or [""]:  # which is a part of every name
        named = [each for each in cells if word in each[1].cell.label or each[1].cell.cell_key.startswith(word)]
        cells = [each for each in cells if each not in named]
        yield from named


def measure(store_url: str, run_id: str, cell_key: str, log: Path, seconds: float) -> int:
    """One attempt of one cell, which has a row afterwards, whatever became of it. Returns the runner's exit code."""
    leases = Leases(Ledger(open_store(store_url), run_id), cell_key)
    before, logged = leases.current(), log.stat().st_size if log.exists() else 0
    code = ran(
        [sys.executable, "-m", "tasks.cell", "--store", store_url, "--run", run_id, "--cell", cell_key], log, seconds
    )
    if ended_with(code) in (Ended.FAILED, Ended.KILLED):
        record(leases, before, code, log.read_bytes()[logged:].decode(errors="replace").splitlines())
    return code


def record(leases: Leases, before: Lease | None, code: int, log: list[str]) -> None:
    """Close a failed runner's attempt, which no flow does here; `before` was the newest lease before it was started."""
    lease = leases.current()
    if lease is None or lease == before:
        lease = leases.acquire(owner_name())
    elif lives_here(lease.owner):
        return  # another runner's by now
    reason = f"the node runner got signal {-code}" if code < 0 else (log or [f"it ended with code {code}"])[-1]
    now, how, tail = leases.clock.now_iso(), ended_with(code), "\n".join(log[-LOG_TAIL_LINES:])
    leases.close(gone_attempt(lease, leases.heartbeat(), how, reason, now, None, tail))


def ran(argv: list[str], log: Path, seconds: float) -> int:
    """A process to its end: it is asked to stop when the time is over. Returns its exit code."""
    with log.open("ab") as out:
        runner = subprocess.Popen(
            argv, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            return runner.wait(seconds)
        except subprocess.TimeoutExpired:
            runner.terminate()
        try:
            return runner.wait(STOP_S)
        except subprocess.TimeoutExpired:
            runner.kill()
            return runner.wait()


def say(text: str) -> None:
    """A line with the time."""
    print(time.strftime("%H:%M:%S", time.gmtime()), text, flush=True)


def main() -> None:
    """Work until nothing is left or the time is over."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--store", required=True)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="a file of run ids; the store has earlier ones, too")
    parser.add_argument("--seconds", type=float, required=True, help="of the whole lease, from now on")
    parser.add_argument(
        "--least-per-start", type=float, required=True, help="seconds that must be left per engine start of a cell"
    )
    parser.add_argument("words", nargs="*", help="parts of cells' names, or beginnings of their keys; none: all")
    args = parser.parse_args()
    ends = time.monotonic() + args.seconds
    for run_id, planned, starts in list(cells_left(open_store(args.store), args.runs.read_text().split(), args.words)):
        left_s = ends - time.monotonic()
        if left_s < (needed_s := starts * args.least_per_start):
            say(f"{left_s:.0f} s are left, {needed_s:.0f} needed: {planned.cell.label} is for the next lease")
            break
        say(f"{run_id} {planned.cell.cell_key} {planned.cell.label}: {starts} engine starts")
        began = time.monotonic()
        log = args.logs / f"node-{run_id}-{planned.cell.cell_key}.log"
        code = measure(args.store, run_id, planned.cell.cell_key, log, left_s)
        say(f"ended with {code} after {time.monotonic() - began:.0f} s")
    say("done")


if __name__ == "__main__":
    main()
