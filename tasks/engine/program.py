"""The program that serves a cell: where it is, whether it starts, and which arguments its release knows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from configs.cell import Engine, Technique
from configs.errors import SpecsweepError
from tasks.engine import container
from tasks.host import environments

ANSWER_S = 120.0  # for its version, before which vLLM imports torch: that takes a minute from a cold disk

SINCE: Mapping[str, tuple[int, int]] = {
    "--enable-per-request-metrics": (0, 25),  # vLLM's RFE #40076, merged 2026-07-07
    "--per-request-spec-decode-metrics": (0, 29),  # vLLM #48915: not in 0.28.0
}
"""First release that knows an argument; arguments that every release since 0.20 knows are not here."""

_RELEASE = re.compile(r"\b(\d+)\.(\d+)(?:\.\w+)*(?:\+\S+)?")


class EngineUnavailable(SpecsweepError):
    """This machine lacks something that the cell needs to be served; the text says what, and how to get it."""


def program(engine: Engine) -> tuple[str, ...]:
    """The words before `serve`: the engine's command, or `vllm` of its environment or PATH; else EngineUnavailable."""
    return _words(engine, "vllm")


def python_words(engine: Engine) -> tuple[str, ...]:
    """The Python that serves with transformers: the engine's command, its environment's, or one of the PATH.

    Of the PATH it is the Python of the `vllm` there, since vLLM's image has torch and transformers in that one; else
    `python3`. Raises as `program` does.
    """
    if engine.command is None and engine.environment is None:
        return tuple(_interpreter(("vllm",)) or ("python3",))
    return _words(engine, "python")


def _words(engine: Engine, script: str) -> tuple[str, ...]:
    if engine.command is not None:
        return (str(Path(engine.command[0]).expanduser()), *engine.command[1:])
    if (venv := venv_of(engine)) is not None:
        return (str(venv / "bin" / script),)
    name = engine.environment
    if name is None:
        return (script,)
    if name not in environments.NAMES:
        remedy = f"write one of your own as a path, with a /; ours are {', '.join(environments.NAMES)}"
        raise EngineUnavailable(f"engine {engine.name!r}: there is no environment {name!r}: {remedy}")
    python = environments.python_of(name)
    if python is None:
        raise not_installed(name)
    return (str(python.parent / script),)


def not_installed(name: str) -> EngineUnavailable:
    """One of our environments is missing."""
    return EngineUnavailable(f"the environment {name!r} is not installed: run `bin/environment {name}`")


def venv_of(engine: Engine) -> Path | None:
    """The user's own virtual environment, which an engine's `environment` names by its path; None: it names none."""
    name = engine.environment
    return None if engine.command is not None or name is None or "/" not in name else Path(name).expanduser()


def is_ours(engine: Engine) -> bool:
    """Whether it is one of our environments, which are made where they are missing."""
    return engine.command is None and engine.environment in environments.NAMES


def serves_on_cards(engine: Engine) -> bool:
    """Whether it wants a card: a vLLM that isn't ours for processors. Of other programs nobody can tell: no."""
    words = engine.command or ("vllm",)
    return not engine.on_cpu and any(Path(word).name == "vllm" for word in words)


def require(engine: Engine, techniques: Iterable[Technique]) -> None:
    """Refuse an engine that could not serve on this machine with these techniques.

    Raises EngineUnavailable: nothing is there, it doesn't start, is older than its arguments, or lacks a package.
    """
    techniques = list(techniques)
    words = program(engine)
    if shutil.which(words[0]) is None:
        raise EngineUnavailable(f"engine {engine.name!r}: {_nowhere(engine, words[0])}")
    if container.is_container(words):
        container.require(words)
    elif says_its_release(words):
        said = release(words)
        drafting = engine.draft_args if any(technique.drafts for technique in techniques) else ()
        args = [*engine.args, *drafting, *(word for technique in techniques for word in technique.engine_args)]
        if unknown := unknown_arguments(args, said):
            first = max(SINCE[flag] for flag in unknown)
            raise EngineUnavailable(
                f"engine {engine.name!r}: vLLM {said} ({shutil.which(words[0])}) doesn't know {', '.join(unknown)}: "
                f"install {'.'.join(map(str, first))} or newer, or copy the engine's file into `engines/` beside "
                "your sweep, under another name, and leave that out"
            )
    for technique in techniques:
        if (lacking := without_module(engine, technique)) is not None:
            raise EngineUnavailable(
                f"technique {technique.name!r}: {lacking}: install it there, or mark its cells `optional: true`"
            )


def _nowhere(engine: Engine, word: str) -> str:
    """Where was looked in vain, and what to do."""
    ways = "`environment: /path/of/a/virtual/environment` or `command: [/path/of/vllm]`"
    if engine.command is None and venv_of(engine) is not None:
        return f"there is no {word}: install vLLM into that environment, or name another one"
    if "/" in word:
        return f"there is no program {word}: correct `command`"
    return (
        f"no {word!r} in any folder of the PATH ({os.environ.get('PATH', '')}): activate the environment that has it, "
        f"or copy configs/engines/vllm-own.yaml into `engines/` beside your sweep and give it {ways}"
    )


def without_module(engine: Engine, technique: Technique) -> str | None:
    """Why a technique can't run in the vLLM of this machine: its Python lacks a package that the technique names.

    None: it lacks nothing, or nobody can tell: vLLM isn't here, lies in a container, or is started by no Python script.
    """
    interpreter = _interpreter(program(engine))
    if technique.needs_module is None or interpreter is None:
        return None
    look = f"import importlib.util as u, sys; sys.exit(u.find_spec({technique.needs_module!r}) is None)"
    done = subprocess.run([*interpreter, "-c", look], capture_output=True, timeout=ANSWER_S, check=False)
    return f"{' '.join(interpreter)} has no package {technique.needs_module!r}" if done.returncode == 1 else None


def _interpreter(words: Sequence[str]) -> list[str] | None:
    """The Python that starts vLLM's own command; None: it isn't here, or nobody can tell."""
    script = shutil.which(words[0])
    if script is None or not says_its_release(words):
        return None
    with Path(script).open("rb") as file:
        first = file.readline().decode(errors="replace").strip()
    interpreter = first.removeprefix("#!").split()
    return interpreter if first.startswith("#!") and "python" in Path(interpreter[-1]).name else None


def says_its_release(words: Sequence[str]) -> bool:
    """Whether it is vLLM's own command, which knows `--version`; what a user's script knows, nobody can tell."""
    return Path(words[-1]).name == "vllm" and not container.is_container(words)


def release(words: Sequence[str]) -> str:
    """What `vllm --version` says, such as 0.32.0. Raises EngineUnavailable: it doesn't start, or says none."""
    asked = f"`{' '.join(words)} --version`"
    try:
        ask = [*words, "--version"]
        done = subprocess.run(
            ask, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise EngineUnavailable(f"{asked} gave no answer in {ANSWER_S:g} s: run it by hand") from None
    except OSError as error:
        raise EngineUnavailable(
            f"{asked} doesn't start ({error.strerror}): its interpreter is gone; install vLLM anew"
        ) from error
    lines = [line.strip() for line in done.stdout.splitlines()]
    found = [match[0] for line in lines if (match := _RELEASE.fullmatch(line))]  # log lines may stand before it
    if done.returncode == 0 and found:
        return found[-1]
    last = next((line.strip() for line in reversed((done.stderr or done.stdout).splitlines()) if line.strip()), "")
    raise EngineUnavailable(
        f"{asked} failed with code {done.returncode} ({last[:200] or 'it said nothing'}): mend that installation, or "
        "name another one with `environment: /path` or `command: [/path/of/vllm]` in the engine's file"
    )


def unknown_arguments(args: Sequence[str], said: str) -> list[str]:
    """The arguments that came after a release; none for a build without a release number (0.1.dev...)."""
    match = _RELEASE.match(said)
    if match is None or said.startswith("0.1.dev"):
        return []
    have = (int(match[1]), int(match[2]))
    flags = dict.fromkeys(word.partition("=")[0].replace("_", "-") for word in args if word.startswith("--"))
    return [flag for flag in flags if SINCE.get(flag, have) > have]
