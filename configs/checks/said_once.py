"""What a cell's command says by itself: what an engine or a technique added to it would be served under its label.

Of an argument given twice the last counts, and theirs come last; a key of `speculative_config` takes the place of ours.
Both engines' own are here: `tasks/engine/command.py`, `tasks/engine/generate.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from configs.cell import Technique
from configs.engine import Engine
from configs.files.document import Document

_SERVING, _MODEL, _CHOSEN = "in `serving`, as ", "in the model's file, as ", "none: it is chosen for each start"

PLACES: Mapping[str, str] = {
    "--host": _CHOSEN,
    "--port": _CHOSEN,
    "--served-model-name": _CHOSEN,
    "--model": f"{_MODEL}hub_id",
    "--revision": f"{_MODEL}revision",
    "--reasoning-parser": f"{_MODEL}reasoning_parser",
    "--max-model-len": f"{_SERVING}max_model_len",
    "--max-num-seqs": f"{_SERVING}max_num_seqs",
    "--gpu-memory-utilization": f"{_SERVING}gpu_memory_utilization",
    "--enable-prefix-caching": f"{_SERVING}prefix_cache",
    "--no-enable-prefix-caching": f"{_SERVING}prefix_cache",
    "--quantization": "in the precision's file",
    "-q": "in the precision's file, as quantization",
    "--dtype": "in the precision's file",
    "--speculative-config": "in the technique's file",
    "-sc": "in the technique's file, as speculative_config",
    "--diffusion-config": "in the row, as denoising_steps or canvas_length",
    "--assistant-model": "in the row, as draft",
    "--assistant-revision": "in the row, as draft",
    "--num-assistant-tokens": "in the row, as k",
    "--prompt-lookup-num-tokens": "in the row, as k",
}
"""Each argument, and where a user says it. `--load-format` is not among them: only of dummy weights it is ours."""


def check_engine_once(document: Document, engine: Engine) -> None:
    """Check that an engine's arguments say nothing that its cells' commands say.

    Raises:
        ConfigError: They do.
    """
    _check_words(document, "args", engine.args)
    _check_words(document, "draft_args", engine.draft_args)


def check_technique_once(document: Document, technique: Technique) -> None:
    """Check that a technique neither says again what its rows say, nor what its own file says elsewhere.

    Raises:
        ConfigError: It does.
    """
    _check_words(document, "engine_args", technique.engine_args)
    places = {"method": "as method of this file"}
    if technique.needs_draft:
        places |= {"model": "in the row, as draft", "revision": "in the row, as revision of its draft"}
    if technique.takes_k:
        places["num_speculative_tokens"] = "in the row, as k"
    for key, place in places.items():
        if key in technique.speculative_config:
            problem = f"{technique.speculative_config[key]!r} would be served under another's label"
            raise document.error(("speculative_config", key), f"{problem}; accepted: {place}")


def _check_words(document: Document, field: str, words: Sequence[str]) -> None:
    for i, word in enumerate(words):
        flag = word.partition("=")[0].partition(".")[0].replace("_", "-")  # vLLM: --speculative-config.model=...
        if flag in PLACES:
            problem = f"{word!r} takes the place of what the command says by itself"
            raise document.error((field, i), f"{problem}; accepted: {PLACES[flag]}")
