"""Deploys all of `prefect.yaml` on a server that is still starting: `python -m flows.terminal.deploying [SILENCE_S]`.

One process for three commands, each of which imports Prefect for seconds. It does so while the server starts, and goes
on when it is given a line.
"""

from __future__ import annotations

import sys

import prefect.cli.deploy
import prefect.cli.work_pool

import flows.reap
import flows.sweep  # noqa: F401
from flows import automations
from flows.terminal.prefect_session import WORK_POOL

COMMANDS = (
    ("work-pool", "create", WORK_POOL, "--type", "process", "--overwrite"),
    ("--no-prompt", "deploy", "--all"),
)


def main() -> int:
    """Run the commands and install the automations; the exit code of the first that fails."""
    silence = sys.argv[1:]
    if not sys.stdin.readline():
        return 1  # whoever waited for the server is gone
    for command in COMMANDS:
        sys.argv[1:] = command
        try:
            prefect.cli.app()
        except SystemExit as ended:
            if ended.code:
                raise
    sys.argv[1:] = silence
    return automations.main()


if __name__ == "__main__":
    sys.exit(main())
