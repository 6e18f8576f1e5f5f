"""Trains the tiny family: ``python -m tasks.family.training.build [--out DIR] [--only NAME] [--json] ...``.

Shipped members (`members.SHIPPED`) are trained only to be compared with what is shipped; others are served from here.
Run it from the repository root with the engine environment's Python. Two members are trained at a time, each in a
process and thread of its own; drafters that need the target come after it.

Output contract
    ``--json``: at most about one line a second and member, ``{"member", "step", "steps", "elapsed_s",
    "eta_s"}``; the last line is ``{"done": true, "out": DIR, "members": [...], "beside_shipped": {"figures":
    [{"member", "what", "trained", "shipped"}], "verdict": TEXT}}`` (null: none of them is shipped). Without it
    the last lines are a table of these figures and the verdict. Exit code 0, however close it came; 1 after a
    failed training, whose own error goes to standard error; 130 or 143 after SIGINT or SIGTERM.

A member is trained in a hidden folder and renamed into place. The target goes on from its last checkpoint. Of two
builders of one folder the second waits, and finds nothing left to do.
"""

import argparse
import contextlib
import fcntl
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from configs.checkout import ROOT
from tasks.family.members import DONE_FILE, SHIPPED, WEIGHTS, damage_of, recipe_hash, trained_dir
from tasks.family.training.recipe import MEMBERS, missing

LOSS_SHARE = 0.1  # most that a loss may be above the shipped one's, as a share of it, for a member as good
SCORE_POINTS = 0.07  # most that a score may be below the shipped one's: three of the 48 questions that a score is of


@dataclass(frozen=True)
class Figure:
    """One figure of a member: of the one trained here and of the shipped one."""

    member: str
    what: str
    trained: float
    shipped: float

    @property
    def is_as_good(self) -> bool:
        """Whether the one trained here is as good, but for noise."""
        if self.what == "loss":
            return self.trained <= self.shipped * (1 + LOSS_SHARE)
        return self.trained >= self.shipped - SCORE_POINTS


def figures(out: Path, members: Sequence[str], shipped: Path = WEIGHTS) -> list[Figure]:
    """The final loss and each score of those of `members` that are shipped too."""
    found: list[Figure] = []
    for member in members:
        if member not in SHIPPED or damage_of(shipped / member) is not None:
            continue
        here, there = (_came_to(folder / member) for folder in (out, shipped))
        found += [Figure(member, what, here[what], there[what]) for what in here if what in there]
    return found


def verdict(found: Sequence[Figure]) -> str:
    """One sentence: how far the figures are apart, and whether the members trained here are as good."""
    losses = [abs(each.trained / each.shipped - 1) for each in found if each.what == "loss"]
    scores = [abs(each.trained - each.shipped) for each in found if each.what != "loss"]
    apart = [f"losses equal within {max(losses):.1%}"] if losses else []
    apart += [f"greedy scores within {max(scores):.3f}"] if scores else []
    worse = [f"{each.member}'s {each.what}" for each in found if not each.is_as_good]
    so = f"not as good as shipped: {', '.join(worse)}" if worse else "as good as shipped"
    return f"{', '.join(apart)}: {so}"


def table(found: Sequence[Figure]) -> str:
    """The figures as lines of text."""
    lines = [f"{'member':8}{'':8}{'trained':>9}{'shipped':>9}"]
    lines += [f"{each.member:8}{each.what:8}{each.trained:9.4f}{each.shipped:9.4f}" for each in found]
    return "\n".join(lines)


def as_json(found: Sequence[Figure]) -> dict[str, Any] | None:
    """The same for a program; None: nothing of it is shipped."""
    return {"figures": [asdict(each) for each in found], "verdict": verdict(found)} if found else None


def _came_to(folder: Path) -> dict[str, float]:
    done = json.loads((folder / DONE_FILE).read_text(encoding="utf-8"))
    return {"loss": done["loss"], **done["scores"]}


MOST_PROCESSES = 2
END_GRACE_S = 5.0
ERROR_LINES = 30


Reports = queue.Queue[tuple[str, str | None]]  # lines of running members by name; None: a member closed its output


class TrainingFailed(Exception):
    """A member's process ended with an error; the message holds the end of what it wrote."""


class Interrupted(Exception):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@dataclass
class Training:
    """A member's running process."""

    name: str
    folder: Path
    process: subprocess.Popen[str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    options = _parse(arguments)
    wanted = list(options.only or (MEMBERS if options.with_diffusion else SHIPPED))
    if any(MEMBERS[name].needs_target for name in wanted) and "target" not in wanted:
        wanted.insert(0, "target")
    out: Path = (options.out or trained_dir(options.steps_scale)).absolute()
    progress = Progress(as_json=options.json)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    try:
        with sole_builder(out, progress):
            build(out, wanted, options.steps_scale, progress)
    except TrainingFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    except Interrupted as interruption:
        return interruption.exit_code
    progress.finish(out, wanted)
    return 0


def build(out: Path, wanted: Sequence[str], steps_scale: float, progress: "Progress") -> None:
    """Trains what is missing of `wanted`, two members at a time; on any error no process is left running."""
    for left in out.glob(".*.partial"):  # of a killed builder
        _discard(left)
    recipe = recipe_hash(steps_scale)
    waiting = missing(out, wanted, steps_scale)
    target_ready = "target" not in waiting
    running: dict[str, Training] = {}
    reports: Reports = queue.Queue()
    try:
        while waiting or running:
            for name in [name for name in waiting if target_ready or not MEMBERS[name].needs_target]:
                if len(running) < MOST_PROCESSES:
                    waiting.remove(name)
                    running[name] = start(name, out, steps_scale, recipe, reports)
            name, line = reports.get()
            if line is None:
                settle(running[name], out)
                del running[name]
                target_ready = target_ready or name == "target"
            else:
                progress.show(name, json.loads(line))
    finally:
        end(list(running.values()))
    for member in wanted:  # safetensors writes files for their owner alone, and a lab node is another user
        for file in (out / member).iterdir():
            file.chmod(0o644)


def start(name: str, out: Path, steps_scale: float, recipe: str, reports: Reports) -> Training:
    """Starts a member's process; its output goes to `reports` by lines, then None when it has ended."""
    folder = out / f".{name}.{os.getpid()}.partial"
    folder.mkdir()
    command = [sys.executable, "-m", "tasks.family.training.member", name, "--out", str(folder)]
    command += ["--target", str(out / "target"), "--steps-scale", str(steps_scale)]
    command += ["--recipe", recipe, "--parent", str(os.getpid())]
    command += ["--checkpoint", str(out / f".target.{recipe}.checkpoint")] if name == "target" else []
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    with _error_file(folder).open("w") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def forward() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            reports.put((name, line))
        reports.put((name, None))

    threading.Thread(target=forward, daemon=True).start()
    return Training(name, folder, process)


def settle(training: Training, out: Path) -> None:
    """Puts a finished member in its place, or raises with the end of its error output."""
    code = training.process.wait()
    errors = _error_file(training.folder)
    if code:
        tail = "\n".join(errors.read_text(errors="replace").splitlines()[-ERROR_LINES:])
        raise TrainingFailed(f"training {training.name} ended with exit code {code}\n{tail}")
    errors.unlink()
    shutil.rmtree(out / training.name, ignore_errors=True)
    training.folder.rename(out / training.name)
    for checkpoint in out.glob(f".{training.name}.*.checkpoint"):
        checkpoint.unlink()


def end(trainings: Sequence[Training]) -> None:
    """Ends processes, first politely, and removes what they had begun."""
    for training in trainings:
        training.process.terminate()
    for training in trainings:
        try:
            training.process.wait(END_GRACE_S)
        except subprocess.TimeoutExpired:
            training.process.kill()
            training.process.wait()
        _discard(training.folder)


@contextlib.contextmanager
def sole_builder(out: Path, progress: "Progress") -> Iterator[None]:
    """Holds the folder's lock; waits while another builder has it."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.note(f"another build of {out} is running: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Progress:
    """What the user sees: lines of JSON, or one line of text that is written over."""

    def __init__(self, *, as_json: bool) -> None:
        """Chooses the form; the line is only written over on a terminal."""
        self._as_json = as_json
        self._overwrite = sys.stdout.isatty()
        self._latest: dict[str, dict[str, Any]] = {}

    def show(self, name: str, report: dict[str, Any]) -> None:
        """Shows one report of a member's process."""
        self._latest[name] = report
        finished = report["step"] == report["steps"]
        if self._as_json:
            print(json.dumps({"member": name, **report}), flush=True)
        elif self._overwrite:
            parts = [
                f"{n} {r['step']}/{r['steps']} ({r['eta_s']:.0f} s left)"
                for n, r in self._latest.items()
                if r["eta_s"] > 0
            ]
            print("\r\033[Ktraining " + ", ".join(parts), end="", flush=True)
        elif finished:
            print(f"trained {name}: {report['steps']} steps in {report['elapsed_s']:.0f} s", flush=True)

    def note(self, text: str) -> None:
        """Says something that is not progress."""
        print(text, file=sys.stderr, flush=True)

    def finish(self, out: Path, members: Sequence[str]) -> None:
        """The last line, or lines."""
        found = figures(out, members)
        if self._as_json:
            done = {"done": True, "out": str(out), "members": list(members), "beside_shipped": as_json(found)}
            print(json.dumps(done), flush=True)
            return
        print(("\r\033[K" if self._overwrite else "") + f"family trained in {out}", flush=True)
        if found:
            print(f"{table(found)}\n{verdict(found)}", flush=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tasks.family.training.build", description="Train the tiny model family from its recipe."
    )
    parser.add_argument("--out", type=Path, help="folder to train in (default: a cache folder named after the recipe)")
    parser.add_argument("--with-diffusion", action="store_true", help="also the DiffusionGemma sibling (as long again)")
    parser.add_argument(
        "--only",
        action="append",
        choices=MEMBERS,
        metavar="NAME",
        help=f"one of {', '.join(MEMBERS)}, may be repeated; the target if one needs it",
    )
    parser.add_argument("--json", action="store_true", help="progress as lines of JSON")
    parser.add_argument("--steps-scale", type=float, default=1.0, help="factor on all training steps, for tests")
    options = parser.parse_args(arguments)
    if options.out is not None and options.out.resolve() == WEIGHTS:
        parser.error(f"--out {options.out}: what is shipped is not trained over; train elsewhere, look, then copy")
    return options


def _discard(folder: Path) -> None:
    if folder.is_file():  # a checkpoint that was being written
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    _error_file(folder).unlink(missing_ok=True)


def _error_file(folder: Path) -> Path:
    return folder.with_suffix(".err")


def _interrupt(number: int, *_: object) -> NoReturn:
    for further in (signal.SIGTERM, signal.SIGINT):
        signal.signal(further, signal.SIG_IGN)  # ending the children must not be interrupted
    raise Interrupted(number)


if __name__ == "__main__":
    sys.exit(main())
