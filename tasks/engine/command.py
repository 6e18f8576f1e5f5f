"""The command line and the environment with which one cell is served."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue

from configs.cell import Cell, Draft, Engine, Model, argument
from configs.checkout import ROOT
from configs.checks.engine import LONGEST_LOOKUP
from configs.local_checkpoint import digest_of, local_folder
from configs.methods import SCHEDULE
from configs.secrets import without_secrets
from tasks.dummy_checkpoint import shape_digest, write_shape
from tasks.engine import container
from tasks.engine.program import ANSWER_S, EngineUnavailable, not_installed, program, python_words, venv_of
from tasks.family import interpreter, members
from tasks.host import environments, process_group
from tasks.host.environment_spec import engine_cache, user_cache
from tasks.host.hub import hub_cache, hub_home

GENERATE_VARIABLES: Mapping[str, str] = {"DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONPATH": str(ROOT)}
"""Of our server around `generate`. The server starts in its cell's folder, and is found in the checkout."""

PACKAGES = ("torch", "transformers")


def require_packages(engine: Engine) -> None:
    """Raises EngineUnavailable where the Python isn't there, or lacks a package."""
    words = _python(engine)
    if shutil.which(words[0]) is None:
        raise EngineUnavailable(
            f"engine {engine.name!r}: no {words[0]!r} in any folder of the PATH ({os.environ.get('PATH', '')}): give "
            "it the `environment: /path` of a virtual environment that has torch and transformers"
        )
    look = f"import importlib.util as u; print(*[p for p in {PACKAGES!r} if u.find_spec(p) is None])"
    done = subprocess.run([*words, "-c", look], capture_output=True, text=True, timeout=ANSWER_S, check=False)
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


FROM_THE_SHELL = ("HF_TOKEN", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES", process_group.ENGINE_VARIABLE)
"""Variables of this process that an engine in a container needs too; one that isn't set stays unset there."""

SAME_CARDS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""CUDA counts the fastest card first, nvidia-smi by bus. Where cards differ, a row would have the name, clock, power
and energy of another card than CUDA_VISIBLE_DEVICES gave the engine."""


class EngineCommand(NamedTuple):
    """How to start an engine: `argv` is the whole command, `env` is added to this process's own environment."""

    argv: tuple[str, ...]
    env: dict[str, str]
    model_revision: str | None
    draft_revision: str | None
    on_cpu: bool = False  # whether the engine uses no card, even where there is one
    reads_hub: bool = False  # whether it fetches weights from the hub, and may need its token

    @property
    def served_name(self) -> str:
        """What requests call the model."""
        return self.argv[self.argv.index("--served-model-name") + 1]


def engine_command(cell: Cell, port: int, workdir: Path) -> EngineCommand:
    """`vllm serve` for a cell, or our server around `generate`, on loopback.

    Raises EngineUnavailable: its environment, its overlay or a member of the demo family is missing or damaged, or a
    folder holds another checkpoint; NoCheckpoint: it holds none.
    """
    weights, env = _checkpoint(cell, cell.model), _environment(cell, workdir)
    if cell.engine.kind == "transformers":
        draft = _checkpoint(cell, cell.draft) if cell.draft else None
        argv = _generate_words(cell, weights, draft, port)
    else:
        argv = _vllm_words(cell, weights, port, env, workdir)
    return EngineCommand(
        argv=tuple(argv),
        env=env,
        model_revision=_revision(cell, cell.model),
        draft_revision=_revision(cell, cell.draft) if cell.draft else None,
        on_cpu=cell.engine.on_cpu,
        reads_hub=any(source is not None and is_on_hub(source) for source in (cell.model, cell.draft)),
    )


def _vllm_words(cell: Cell, weights: str, port: int, env: Mapping[str, str], workdir: Path) -> list[str]:
    words = program(cell.engine)
    if container.is_container(words):
        words = container.words_inside(words, (*env, *FROM_THE_SHELL), _folders(cell, env), workdir)
    draft = _checkpoint(cell, cell.draft) if cell.draft is not None and cell.technique.drafts else None
    return [*words, "serve", *serve_words(cell, weights, draft, port)]


def serve_words(cell: Cell, weights: str, draft: str | None, port: int) -> list[str]:
    """What follows `vllm serve`; `weights` and `draft` name the checkpoints to vLLM, as a hub id or a folder."""
    argv = [
        weights, "--served-model-name", cell.model.name, "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", str(cell.serving.max_model_len),
        "--enable-prefix-caching" if cell.serving.prefix_cache else "--no-enable-prefix-caching",
    ]  # fmt: skip
    argv += _options(
        ("--revision", _hub_revision(cell.model)),
        ("--max-num-seqs", cell.serving.max_num_seqs),
        ("--gpu-memory-utilization", cell.serving.gpu_memory_utilization),
        ("--quantization", cell.precision.quantization),
        ("--dtype", cell.precision.dtype),
        ("--reasoning-parser", cell.model.reasoning_parser),
        ("--load-format", "dummy" if cell.model.weights == "dummy" else None),
    )
    argv += [*cell.engine.args, *cell.technique.engine_args]
    speculative = speculative_config(cell, draft)
    if speculative is not None:
        argv += ["--speculative-config", json.dumps(speculative, sort_keys=True), *cell.engine.draft_args]
    # vLLM (0.32.0) takes the canvas' length from the checkpoint only without this, the steps also where they are null
    if cell.denoising_steps is not None or cell.canvas_length is not None:
        diffusion = {"canvas_length": cell.canvas, "max_denoising_steps": cell.denoising_steps}
        argv += ["--diffusion-config", json.dumps(diffusion, sort_keys=True)]
    return argv


def _generate_words(cell: Cell, weights: str, draft: str | None, port: int) -> list[str]:
    """Our server around `generate`. `draft`: hub id or folder of what drafts; None: nothing, or the text so far."""
    argv = [
        *_python(cell.engine), "-m", "tasks.transformers_engine", "--model", weights,
        "--served-model-name", cell.model.name, "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", str(cell.serving.max_model_len),
    ]  # fmt: skip
    looks_up = cell.technique.canonical == "ngram"
    argv += _options(
        ("--revision", _hub_revision(cell.model)),
        ("--dtype", cell.precision.dtype),
        ("--reasoning-parser", cell.model.reasoning_parser),
        ("--assistant-model", draft),
        ("--assistant-revision", _hub_revision(cell.draft) if cell.draft else None),
        ("--num-assistant-tokens", cell.k if draft is not None else None),
        ("--num-assistant-tokens-schedule", cell.technique.speculative_config.get(SCHEDULE)),
        ("--prompt-lookup-num-tokens", cell.k if looks_up else None),
        ("--max-matching-ngram-size", cell.technique.speculative_config.get(LONGEST_LOOKUP) if looks_up else None),
        ("--device", "cpu" if cell.engine.on_cpu else None),
    )
    return [*argv, *cell.engine.args, *(cell.engine.draft_args if cell.technique.drafts else ())]


def _options(*options: tuple[str, object]) -> list[str]:
    """Flags with their values, but for those without one."""
    return [word for flag, value in options if value is not None for word in (flag, str(value))]


def speculative_config(cell: Cell, draft: str | None) -> dict[str, JsonValue] | None:
    """What vLLM is given as `--speculative-config`; None if the technique drafts nothing."""
    if not cell.technique.drafts:
        return None
    config: dict[str, JsonValue] = {"method": cell.technique.canonical}
    if cell.draft is not None and draft is not None:
        config["model"] = draft
        if (revision := _hub_revision(cell.draft)) is not None:
            config["revision"] = revision
    if cell.k is not None:
        config["num_speculative_tokens"] = cell.k
    replayed = cell.acceptance.speculative_config if cell.acceptance is not None else {}
    return config | cell.technique.speculative_config | replayed


def is_on_hub(source: Model | Draft) -> bool:
    """Whether its weights come from the hub, and none of this machine's folders is meant."""
    return source.hub_id is not None and local_folder(source.hub_id) is None


def _hub_revision(source: Model | Draft) -> str | None:
    return source.revision if is_on_hub(source) else None


def _checkpoint(cell: Cell, source: Model | Draft) -> str:
    if source.hub_id is not None:
        if (folder := local_folder(source.hub_id)) is not None and source.revision != (here := digest_of(folder)):
            raise EngineUnavailable(f"{folder} holds another checkpoint ({here}) than was planned: plan a new run")
        return source.hub_id
    if source.shape is not None:
        return str(write_shape(cell.shape_named(source.shape), user_cache() / "shapes"))
    member = str(source.family_member)
    if (problem := members.why_not(member)) is not None:
        raise EngineUnavailable(problem)
    if source.revision != (here := members.revision_of(member)):
        raise EngineUnavailable(f"{member!r} of the demo family is {here} here, not {source.revision}: plan a new run")
    return str(members.folder_of(member))


def _revision(cell: Cell, source: Model | Draft) -> str | None:
    return source.revision if source.shape is None else shape_digest(cell.shape_named(source.shape))


def _folders(cell: Cell, env: Mapping[str, str]) -> list[Path]:
    """What an engine in a container reads and writes of this machine."""
    sources = [_checkpoint(cell, source) for source in (cell.model, cell.draft) if source is not None]
    local, hub = [Path(each) for each in sources if each.startswith("/")], os.environ | env
    return [hub_home(hub), hub_cache(hub), compile_cache(cell.engine), *local]


def overlay_name(cell: Cell) -> environments.Name | None:
    """The overlay that the engine needs on its PYTHONPATH; None unless it is block diffusion on the CPU."""
    return "engine-diffusion" if cell.engine.on_cpu and cell.technique.denoises else None


def _environment(cell: Cell, workdir: Path) -> dict[str, str]:
    ours = GENERATE_VARIABLES if cell.engine.kind == "transformers" else _vllm_variables(cell.engine)
    env = {**SAME_CARDS, **ours}
    if (venv := venv_of(cell.engine)) is not None:  # as its `activate` does: kernels are built with its ninja
        env |= {"VIRTUAL_ENV": str(venv), "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    if cell.engine.command is not None and container.is_container(cell.engine.command):
        env["HF_HOME"] = str(hub_home(os.environ))
    if cell.model.hub_id is None:
        env |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if cell.model.routing is not None:
        env["VLLM_MOE_ROUTING_SIMULATION_STRATEGY"] = f"uniform_{cell.model.routing}"
    overlay = overlay_name(cell)
    if overlay is not None:
        packages = environments.overlay_of(overlay)
        if packages is None:
            raise not_installed(overlay)
        env |= interpreter.write_backend(workdir / "triton-interpreter")
        env["PYTHONPATH"] += f"{os.pathsep}{packages}"
    return env | cell.engine.env | cell.technique.engine_env


def _vllm_variables(engine: Engine) -> dict[str, str]:
    is_eager = engine.on_cpu and argument(engine.args, "enforce_eager") is not None
    return {
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # if unset, vLLM finds its own address with a UDP connect to a public one
        "VLLM_HOST_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        # otherwise process titles overwrite /proc/<pid>/environ, in which `process_group` looks for its mark
        "SPT_NOENV": "1",
        "VLLM_CACHE_ROOT": str(compile_cache(engine)),
        # `--enforce-eager` means the model alone: vLLM 0.32 still compiles what ranks log-probabilities, and the first
        # request for any waits 13 s on two cores (2026-11-24). No timed request asks.
        **({"TORCHDYNAMO_DISABLE": "1"} if is_eager else {}),
    }


def compile_cache(engine: Engine) -> Path:
    """The folder of `engine_cache` for an engine."""
    return engine_cache(engine.name, engine.environment, engine.command, engine.image)


def full_environment(command: EngineCommand) -> dict[str, str]:
    """This process's environment and the command's on top; without secrets, which an engine would only leak."""
    inherited = without_secrets(os.environ)
    for name in ("PYTHONDONTWRITEBYTECODE", "VLLM_API_KEY"):  # it slows the start; it would lock out our client
        inherited.pop(name, None)
    return inherited | command.env
