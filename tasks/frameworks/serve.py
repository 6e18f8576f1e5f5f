"""The loop of every adapter: a job's path comes in on stdin, `done <path>` goes out when its result lies beside it.

An adapter stays alive over many jobs, because importing a framework takes tens of seconds. Standard library only.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, TextIO

from tasks.frameworks.job import Job, Result, read_job, write

PACKAGES: Final = {"lm-eval": "lm-eval", "inspect": "inspect-ai", "hret": "haerae-evaluation-toolkit"}
"""The package whose version is the framework's version."""

LONGEST_ERROR = 500
"""Characters: an error is one line in a terminal; the traceback in the adapter's log has the rest."""


def serve(framework: str, run: Callable[[Job], Result]) -> None:
    """Run jobs until stdin ends. What the framework prints goes to stderr; stdout has one `done` line per job."""
    answers = _own_stdout()
    for line in sys.stdin:
        if path := line.strip():
            write(result_of(Path(path)), _outcome(framework, run, Path(path)))
            print(f"done {path}", file=answers, flush=True)


def result_of(job: Path) -> Path:
    """Where the result of `<name>.json` lies: `<name>.result.json` in the same folder."""
    return job.with_suffix(".result.json")


def version_of(framework: str) -> str:
    """Version of the framework's installed package; "none" if it is not installed."""
    try:
        return version(PACKAGES[framework])
    except PackageNotFoundError:
        return "none"


def one_line(error: BaseException) -> str:
    """Type and message of an error on one line, and of what caused it where the message itself is empty."""
    said = " ".join(str(error).split())
    if not said and error.__cause__ is not None:
        return f"{type(error).__name__} from {one_line(error.__cause__)}"
    return f"{type(error).__name__}: {said}"[:LONGEST_ERROR]


def _own_stdout() -> TextIO:
    """The stdout that the process was started with; from here on the process's stdout is its stderr."""
    sys.stdout.flush()
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def _outcome(framework: str, run: Callable[[Job], Result], path: Path) -> Result:
    try:
        return run(read_job(path))
    except (Exception, SystemExit) as error:  # a framework that gives up by sys.exit has failed too
        traceback.print_exc()
        return Result(framework, version_of(framework), error=one_line(error))
