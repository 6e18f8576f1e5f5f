"""A command in this Python, run to its end for what it says; Prefect's own are such."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

from configs.checkout import ROOT
from configs.errors import SpecsweepError


class CommandFailed(SpecsweepError):
    """It exited non-zero; the text ends with what it said."""


def output_of(arguments: Sequence[str], env: Mapping[str, str]) -> str:
    """What `python ARGUMENTS` writes.

    Args:
        arguments: behind the interpreter.
        env: its environment.

    Raises:
        CommandFailed: it exits non-zero.
    """
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise CommandFailed(f"`python {' '.join(arguments)}` failed: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout
