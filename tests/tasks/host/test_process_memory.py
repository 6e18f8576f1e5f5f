"""The most memory that processes ever had, by the kernel's own mark."""

from __future__ import annotations

import os
import subprocess
import sys

from tasks.host.process_group import peak_bytes

MIB = 2**20

GROWN = "kept = bytearray(96 * 2**20); del kept; print('grown', flush=True); input()"


def test_a_peak_stays_when_the_memory_was_given_back_and_peaks_add_up() -> None:
    argv = [sys.executable, "-c", GROWN]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"grown\n"
        alone, own = peak_bytes([process.pid]), peak_bytes([os.getpid()])
        assert alone is not None and own is not None
        assert alone > 96 * MIB
        both = peak_bytes([process.pid, os.getpid()])
        assert both is not None and both >= alone + own
        process.communicate(b"\n")
    assert peak_bytes([process.pid]) is None, "it is gone"
    assert peak_bytes([]) is None
