"""Entry point of the process in which `sweep run` executes the flow: NAME STORE RUN_ID."""

from __future__ import annotations

import sys

from configs.secrets import guard_streams
from flows.sweep import sweep


def main() -> int:
    """Run the flow; returns 0 if every cell is measured or rejected, else 1."""
    guard_streams()
    name, store, run_id = sys.argv[1:4]
    state = sweep(name=name, store=store, run_id=run_id, return_state=True)
    if state.is_completed():
        return 0
    print(state.message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
