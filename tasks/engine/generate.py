"""The transformers engine's command: our server around `generate`, by the Python that has torch and transformers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from configs.cell import Cell
from configs.checkout import ROOT
from configs.engine import Engine
from configs.without_vllm.generate import LONGEST_LOOKUP
from tasks.engine import container
from tasks.engine.program import ANSWER_S, EngineUnavailable, python_words

MODULE = "tasks.transformers_engine"

VARIABLES: Mapping[str, str] = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "PYTHONPATH": str(ROOT),
}
"""Its variables. The server starts in its cell's folder, and is found in the checkout."""

PACKAGES = ("torch", "transformers")


def arguments(cell: Cell, weights: str, draft: str | None, port: int) -> list[str]:
    """The whole command for a cell.

    Args:
        cell: what is served; its sweep was checked for what `generate` can serve.
        weights: hub id or folder of the target.
        draft: of what drafts; None: nothing, or the text so far.
        port: on loopback.

    Raises:
        EngineUnavailable: the environment is missing, or the engine's command starts a container.
    """
    argv = [
        *_python(cell.engine), "-m", MODULE, "--model", weights,
        "--served-model-name", cell.model.name, "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", str(cell.serving.max_model_len),
    ]  # fmt: skip
    looks_up = cell.technique.method == "ngram"
    options: list[tuple[str, object]] = [
        ("--revision", cell.model.revision if cell.model.hub_id else None),
        ("--dtype", cell.precision.dtype),
        ("--reasoning-parser", cell.model.reasoning_parser),
        ("--assistant-model", draft),
        ("--assistant-revision", cell.draft.revision if cell.draft and cell.draft.hub_id else None),
        ("--num-assistant-tokens", cell.k if draft is not None else None),
        ("--prompt-lookup-num-tokens", cell.k if looks_up else None),
        ("--max-matching-ngram-size", cell.technique.speculative_config.get(LONGEST_LOOKUP) if looks_up else None),
        ("--device", "cpu" if cell.engine.on_cpu else None),
    ]
    for flag, value in options:
        if value is not None:
            argv += [flag, str(value)]
    return [*argv, *cell.engine.args, *(cell.engine.draft_args if cell.technique.drafts else ())]


def require(engine: Engine) -> None:
    """Refuse a Python that isn't there, or that lacks a package.

    Raises:
        EngineUnavailable: so it is.
    """
    words = _python(engine)
    if shutil.which(words[0]) is None:
        raise EngineUnavailable(
            f"engine {engine.name!r}: no {words[0]!r} in any folder of the PATH ({os.environ.get('PATH', '')}): give "
            "it the `environment: /path` of a virtual environment that has torch and transformers"
        )
    look = f"import importlib.util as u; print(*[p for p in {PACKAGES!r} if u.find_spec(p) is None])"
    asked = [*words, "-c", look]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    lacking = done.stdout.strip() if done.returncode == 0 else " ".join(PACKAGES)
    if lacking:
        raise EngineUnavailable(
            f"engine {engine.name!r}: {' '.join(words)} has no {lacking.replace(' ', ' and ')}: install it there, or "
            "name another Python in the engine's file, as `environment: /path`"
        )


def _python(engine: Engine) -> Sequence[str]:
    words = python_words(engine)
    if container.is_container(words):
        raise EngineUnavailable(
            f"engine {engine.name!r}: of kind transformers, and its command starts a container, which lacks this "
            "checkout: name a Python with torch and transformers instead, as /opt/venv/bin/python"
        )
    return words
