"""`python -m flows.terminal`: the `sweep` command. Steps are looked up while it is imported, and may be wrong."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Import the command and run it; an error of an own step is one line, like any other."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command is there, Ctrl-C has nothing to clean up
    from configs.errors import SpecsweepError, leave

    try:
        from flows.terminal.cli import main as run
    except SpecsweepError as error:
        sys.exit(leave("sweep", error))
    run()


if __name__ == "__main__":
    main()
