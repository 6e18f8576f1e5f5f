"""Reading Parquet leaves nothing behind: a thread of Arrow's that lives on may abort a process that ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.checkout import ROOT

READERS = {
    "decode": "from warehouse.ledger.parts import decode; read = lambda file: decode(file.read_bytes(), file.name)",
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
    done = subprocess.run([sys.executable, "-c", script, file], cwd=ROOT, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr
