"""Serves as `vllm` would, except that a server that speculates quietly gets other weights: a fault for a test to find.

python damaged_vllm.py VLLM DAMAGED_FOLDER serve MODEL ...
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    vllm, damaged, *arguments = sys.argv[1:]
    if "--speculative-config" in arguments:
        arguments[1] = damaged
    os.execv(vllm, [vllm, *arguments])
