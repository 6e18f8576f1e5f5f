"""The command line and the environment with which one cell is served."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import NamedTuple, cast

from configs.cell import Cell, Draft, Model
from configs.cell import Engine as EngineSpec
from configs.errors import SpecsweepError
from tasks.engine.machine import state_dir
from tasks.family import interpreter
from tasks.family.recipe import family_dir
from tasks.host import environments


class EngineUnavailable(SpecsweepError):
    """This machine lacks something that the cell needs to be served; the text says what, and how to get it."""


class EngineCommand(NamedTuple):
    """How to start an engine: `argv` is the whole command, `env` is added to this process's own environment."""

    argv: tuple[str, ...]
    env: dict[str, str]
    model_revision: str | None
    draft_revision: str | None

    @property
    def served_name(self) -> str:
        """What requests call the model."""
        return self.argv[self.argv.index("--served-model-name") + 1]


def engine_command(cell: Cell, port: int, workdir: Path) -> EngineCommand:
    """`vllm serve` for a cell, on loopback.

    Raises:
        EngineUnavailable: the engine's environment, its overlay or a member of the demo family is missing.
    """
    weights = _checkpoint(cell.model)
    argv = [
        *_executable(cell), "serve", weights,
        "--served-model-name", cell.model.name, "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", str(cell.serving.max_model_len),
        "--enable-prefix-caching" if cell.serving.prefix_cache else "--no-enable-prefix-caching",
    ]  # fmt: skip
    options: list[tuple[str, str | int | float | None]] = [
        ("--revision", cell.model.revision if cell.model.hub_id else None),
        ("--max-num-seqs", cell.serving.max_num_seqs),
        ("--gpu-memory-utilization", cell.serving.gpu_memory_utilization),
        ("--quantization", cell.precision.quantization),
        ("--dtype", cell.precision.dtype),
        ("--reasoning-parser", cell.model.reasoning_parser),
        ("--load-format", "dummy" if cell.model.weights == "dummy" else None),
    ]
    for flag, value in options:
        if value is not None:
            argv += [flag, str(value)]
    argv += cell.engine.args
    speculative = speculative_config(cell)
    if speculative is not None:
        argv += ["--speculative-config", json.dumps(speculative, sort_keys=True), *_draft_metrics(cell.engine)]
    return EngineCommand(
        argv=tuple(argv),
        env=_environment(cell, workdir),
        model_revision=cell.model.revision,
        draft_revision=cell.draft.revision if cell.draft else None,
    )


def _draft_metrics(engine: EngineSpec) -> list[str]:
    """Asks for each request's drafts from an engine that was told to say what it knows of each request.

    No argument of the engine's file: vLLM refuses it where nothing is drafted (0.32.0, `config/vllm.py`). It knows it
    from 0.29 on, and --enable-per-request-metrics from 0.27: leave that out of the file of an engine in between.
    """
    told = engine.argument("--enable-per-request-metrics") is not None
    decided = engine.argument("--per-request-spec-decode-metrics") is not None
    return ["--per-request-spec-decode-metrics", "summary"] if told and not decided else []


def speculative_config(cell: Cell) -> dict[str, str | int | float | bool | None] | None:
    """What vLLM is given as `--speculative-config`; None if the technique drafts nothing."""
    if not cell.technique.drafts:
        return None
    config: dict[str, str | int | float | bool | None] = {"method": cell.technique.method}
    if cell.draft is not None:
        config["model"] = _checkpoint(cell.draft)
        if cell.draft.hub_id and cell.draft.revision:
            config["revision"] = cell.draft.revision
    if cell.k is not None:
        config["num_speculative_tokens"] = cell.k
    return config | cell.technique.speculative_config


def _checkpoint(source: Model | Draft) -> str:
    if source.hub_id is not None:
        return source.hub_id
    folder = family_dir() / str(source.family_member)
    if not (folder / "DONE").exists():
        raise EngineUnavailable(f"the demo family has no {source.family_member!r} in {folder}: run `make family`")
    return str(folder)


def _executable(cell: Cell) -> tuple[str, ...]:
    if cell.engine.command is not None:
        return cell.engine.command
    name = cell.engine.environment
    if name is None:
        return ("vllm",)
    python = environments.python_of(cast(environments.Name, name))
    if python is None:
        raise _not_installed(name)
    return (str(python.parent / "vllm"),)


def _not_installed(name: str) -> EngineUnavailable:
    return EngineUnavailable(f"the environment {name!r} is not installed: run `bin/environment {name}`")


def overlay_name(cell: Cell) -> environments.Name | None:
    """The overlay that the engine needs on its PYTHONPATH; None unless it is block diffusion on the CPU."""
    ours = cell.engine.environment == "engine-cpu" and cell.engine.command is None
    return "engine-diffusion" if ours and cell.technique.denoises else None


def _environment(cell: Cell, workdir: Path) -> dict[str, str]:
    env = {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # if unset, vLLM finds its own address with a UDP connect to a public one
        "VLLM_HOST_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        # otherwise process titles overwrite /proc/<pid>/environ, in which `process_group` looks for its mark
        "SPT_NOENV": "1",
        "VLLM_CACHE_ROOT": str(compile_cache(cell.engine)),
    }
    if cell.model.family_member is not None:
        env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    overlay = overlay_name(cell)
    if overlay is not None:
        packages = environments.overlay_of(overlay)
        if packages is None:
            raise _not_installed(overlay)
        env |= interpreter.write_backend(workdir / "triton-interpreter")
        env["PYTHONPATH"] += f"{os.pathsep}{packages}"
    return env | cell.engine.env | cell.technique.engine_env


def compile_cache(engine: EngineSpec) -> Path:
    """Where an engine keeps what it compiles: one folder per engine and machine, so that no run compiles it again.

    vLLM's own keys in it cover model, arguments, environment and its code (0.32.0, `compilation/`); what decides which
    vLLM it is decides the folder.
    """
    build = [engine.name, engine.environment, engine.command, engine.image]
    digest = hashlib.sha256(json.dumps(build).encode()).hexdigest()
    return state_dir() / "vllm-cache" / f"{engine.name}-{digest[:8]}"


def full_environment(command: EngineCommand) -> dict[str, str]:
    """This process's environment and the command's on top; without PYTHONDONTWRITEBYTECODE, which slows the start."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return inherited | command.env
