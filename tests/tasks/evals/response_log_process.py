"""A response log in a process of its own, to be killed: given UPSTREAM and FOLDER it prints its address."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tasks.evals.response_log import ResponseLog
from tests.tasks.evals.response_log_case import POLICY, SUITE
from warehouse.ledger.steps.evaluation import EXCHANGES
from warehouse.ledger.tables import Row, decode, encode

FOLDER = Path(sys.argv[2])


async def write(rows: Sequence[Row]) -> None:
    stamp = {"run_id": "r", "cell_key": POLICY.cell_key, "step": SUITE, "attempt": 1, "measured_at": "2026-11-22"}
    part = FOLDER / f"{len(list(FOLDER.glob('*.parquet'))):06d}.parquet"
    half = part.with_suffix(".half")
    half.write_bytes(encode(EXCHANGES, [{**stamp, **row} for row in rows]))
    half.rename(part)


async def main() -> None:
    work = asyncio.current_task()
    assert work
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
    known = [row for path in sorted(FOLDER.glob("*.parquet")) for row in decode(path.read_bytes(), path.name)]
    with suppress(asyncio.CancelledError):
        async with ResponseLog(sys.argv[1], POLICY, SUITE, known, write, flush_items=2) as response_log:
            print(response_log.url(0), flush=True)
            await asyncio.Event().wait()


asyncio.run(main())
