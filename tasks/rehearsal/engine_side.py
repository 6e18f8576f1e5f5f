"""What the pinned vLLM makes of commands: its parser, its configuration, its model classes and its cache's arithmetic.

Runs inside the engine's environment. On stdin one JSON document: `card` (name, memory_bytes, capability; null for the
processor) and `cells`, each with `key`, `argv` (what follows `vllm serve`) and `env`. On stdout one line of JSON a
cell: `key` and its facts (`Facts` of facts.py). vLLM is imported once, and each cell has a process forked from that.

Models are made on torch's "meta" device: layers, formats and sizes, without memory for one weight.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any, NoReturn, TextIO

CELL_S = 120.0  # longest that a cell may take: its configuration 3 s, its model 1 s on two cores; the rest is for load
POLL_S = 0.05
LONGEST_FACT = 2000  # characters of an error that are kept
REMARKED = ("deprecated", "duplicate", "is not supported", "has no effect")
"""Words of those warnings of vLLM that tell the user about an argument."""


class _Refused(Exception):
    """The parser doesn't take the words."""


def main() -> None:
    """Rehearse the cells on stdin."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what vLLM prints is no answer
    asked = json.load(sys.stdin)
    os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    if asked["card"] is not None:
        from tasks.rehearsal.stand_in import Card, install

        card = asked["card"]
        install(Card(card["name"], card["memory_bytes"], tuple(card["capability"])))
    parser = _parser()
    if asked.get("lists_arguments"):
        json.dump(_arguments(parser), answers, indent=0)
    for cell in asked["cells"]:
        _in_a_process_of_its_own(parser, cell, answers)


def _parser() -> Any:
    # imported once for all cells: this module brings what making a model imports, and arg_utils what configuring does
    import vllm.model_executor.layers.quantization.quark.quark  # noqa: F401
    import vllm.model_executor.models.registry as registry
    from vllm.engine import arg_utils  # noqa: F401
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    registry._run_in_subprocess = lambda look: look()  # each would be a process that imports vLLM again

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]
        def error(self, message: str) -> NoReturn:
            raise _Refused(message)

    return make_arg_parser(Parser(prog="vllm serve"))


def _arguments(parser: Any) -> dict[str, list[Any]]:
    """Every argument: its canonical name, how many words it takes (argparse's `nargs`), and its spellings."""
    takes = {action.dest: 1 if action.nargs is None else action.nargs for action in parser._actions}
    spelled: dict[str, list[str]] = {}
    for action in parser._actions:
        spelled.setdefault(action.dest, []).extend(action.option_strings)
    return {dest: [takes[dest], *spelled[dest]] for dest in sorted(takes) if spelled[dest] and dest != "help"}


def _in_a_process_of_its_own(parser: Any, cell: dict[str, Any], answers: TextIO) -> None:
    """Distributed state and variables of one cell stay its own; so does whatever kills or hangs it."""
    with TemporaryFile("w+", encoding="utf-8") as given:
        child = os.fork()
        if child == 0:
            try:
                json.dump(_facts(parser, cell["argv"], cell["env"]), given, default=str)
                given.flush()
            finally:
                os._exit(0)
        until, ended = time.monotonic() + CELL_S, (0, 0)
        while ended == (0, 0):
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
            time.sleep(POLL_S)
            ended = os.waitpid(child, os.WNOHANG)
        given.seek(0)
        text = given.read() if ended[1] == 0 else ""
    lost = {"stage": "process", "error": f"its rehearsal died, or took longer than {CELL_S:g} s"}
    print(json.dumps({"key": cell["key"], **(json.loads(text) if text else lost)}), file=answers, flush=True)


def _facts(parser: Any, argv: list[str], env: dict[str, str]) -> dict[str, Any]:
    """All that could be found out, until something was refused: then `error` says what, and `stage` where."""
    import huggingface_hub.constants as hub

    os.environ |= env
    hub.HF_HUB_OFFLINE = os.environ.get("HF_HUB_OFFLINE") == "1"  # its module is imported already
    facts: dict[str, Any] = {"stage": "arguments", "error": None, "warnings": _kept_warnings()}
    try:
        for found in _stages(parser, argv):
            facts |= found
    except (SystemExit, Exception) as error:
        facts["error"] = f"{type(error).__name__}: {error}"[:LONGEST_FACT]
    return facts


def _stages(parser: Any, argv: list[str]) -> Iterator[dict[str, Any]]:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import validate_parsed_serve_args
    from vllm.usage.usage_lib import UsageContext

    arguments = parser.parse_args(argv)
    arguments.model = arguments.model_tag
    given = {name: value for name, value in vars(arguments).items() if value != parser.get_default(name)}
    yield {"arguments": {name: given[name] for name in sorted(given)}, "stage": "configuration"}
    validate_parsed_serve_args(arguments)
    config = AsyncEngineArgs.from_cli_args(arguments).create_engine_config(UsageContext.OPENAI_API_SERVER)
    yield {**_configured(config), "stage": "model"}
    with _one_of_many(config):
        made = _made(config, *_models(config))
        yield {**made, "stage": "cache"}
        yield {**_cached(config, made["weights_bytes"] + made["draft_bytes"]), "stage": "done"}


def _configured(config: Any) -> dict[str, Any]:
    model, scheduler, parallel = config.model_config, config.scheduler_config, config.parallel_config
    speculative = config.speculative_config
    return {
        "architecture": model.architectures[0],
        "own_class": "Transformers" not in model._model_info.architecture,
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": model.quantization,
        "kv_cache_dtype": config.cache_config.cache_dtype,
        "max_model_len": model.max_model_len,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "cards": parallel.world_size * parallel.data_parallel_size,
        "method": speculative and speculative.method,
        "k": speculative and speculative.num_speculative_tokens,
        "draft_architecture": _draft_of(config) and _draft_of(config).architectures[0],
        "draft_numbers": _numbers_of(_draft_of(config)),
        "full_graphs": bool(config.compilation_config.cudagraph_mode.has_full_cudagraphs()),
    }


def _draft_of(config: Any) -> Any:
    """The configuration of the model that drafts; None: it drafts by itself, from the text, or not at all."""
    speculative = config.speculative_config
    drafts = speculative is not None and speculative.method not in ("ngram", "ngram_gpu", "suffix", "custom_class")
    return speculative.draft_model_config if drafts else None


def _numbers_of(model: Any) -> dict[str, int]:
    """The whole numbers of a model's config.json, those of its language model included."""
    told = {} if model is None else model.hf_config.to_dict()
    of_text = told.get("text_config") or {}
    return {name: number for name, number in (of_text | told).items() if type(number) is int}


@contextmanager
def _one_of_many(config: Any) -> Iterator[None]:
    """This process as the first of as many as the model is spread over, which only exist in name."""
    import torch.distributed as dist
    import vllm.distributed.parallel_state as state
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from vllm.config import set_current_vllm_config

    parallel, group, make = config.parallel_config, dist.new_group, state.GroupCoordinator.__init__
    many = parallel.world_size

    def alone(self: Any, *args: Any, **more: Any) -> None:
        make(self, *args, **more | {"use_device_communicator": False, "use_message_queue_broadcaster": False})

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=many)
    dist.new_group = lambda ranks=None, *_, **__: group(ranks, backend="fake")
    state.GroupCoordinator.__init__ = alone
    state.in_the_same_node_as = lambda *_, **__: [True] * many
    with set_current_vllm_config(config, check_compile=False):
        state.init_distributed_environment(many, 0, "tcp://127.0.0.1:1", 0, "fake")
        state.initialize_model_parallel(
            parallel.tensor_parallel_size,
            parallel.pipeline_parallel_size,
            parallel.prefill_context_parallel_size,
            parallel.decode_context_parallel_size,
        )
        yield


def _models(config: Any) -> tuple[Any, Any]:
    """Target and draft, the second None without one: as vLLM's workers make them, on the meta device."""
    import torch
    from vllm.config import replace
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    speculative, draft, drafts = config.speculative_config, None, _draft_of(config)
    with set_default_torch_dtype(config.model_config.dtype), torch.device("meta"):
        target = initialize_model(vllm_config=config)
        if drafts is not None:
            kept = config.attention_config.backend if speculative.use_gemma4_mtp() else None
            own = {"backend": speculative.attention_backend or kept}
            if speculative.method == "dflash":
                own["use_non_causal"] = True
            other = {"attention_config": replace(config.attention_config, **own)}
            if speculative.uses_draft_model():
                other |= {"model_config": drafts, "quant_config": None}
                draft = initialize_model(vllm_config=replace(config, **other), prefix="draft_model")
            else:
                draft = initialize_model(vllm_config=replace(config, **other), model_config=drafts)
    return target, draft


def _made(config: Any, target: Any, draft: Any) -> dict[str, Any]:
    layers = _layers(target)
    drafts = _layers(draft) if draft is not None else []
    is_head = not config.speculative_config.uses_draft_model() if drafts else False
    return {
        "layers": layers,
        "weights_bytes": sum(layer["bytes"] for layer in layers),
        # a head may share the target's embeddings, and then they are there once
        "draft_bytes": sum(layer["bytes"] for layer in drafts if not (is_head and layer["is_embedding"])),
    }


def _layers(model: Any) -> list[dict[str, Any]]:
    """Parameters by kind of layer and by method; bytes as they are once loaded, of one card."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    seen: set[int] = set()
    for name, module in model.named_modules():
        weights = [each for each in module.parameters(recurse=False) if id(each) not in seen]
        seen |= {id(each) for each in weights}
        method = getattr(module, "quant_method", None)
        if not weights:
            continue
        kind = type(module).__name__
        says = "none" if method is None else type(method).__name__
        layer = found.setdefault((kind, says), {"kind": kind, "method": says, "n": 0, "bytes": 0, "first": name})
        layer["n"] += 1
        layer["quantized"] = method is not None and not says.startswith("Unquantized")
        layer["is_embedding"] = "Embedding" in kind or "LMHead" in kind
        layer["bytes"] += sum(round(each.numel() * _bytes_each(each, method)) for each in weights)
    return sorted(found.values(), key=lambda layer: -layer["bytes"])


def _bytes_each(weight: Any, method: Any) -> float:
    """Bytes a value once loaded: what is quantized while loading is first made in the checkpoint's format."""
    narrow = {"mxfp4": 0.53125, "nvfp4": 0.5625, "mxfp8": 1.03125}  # 4 or 8 bits, a scale for 32 or for 16 of them
    module = type(method).__module__ if method is not None else ""
    if ".quantization.online." in module and weight.dim() > 1 and weight.element_size() > 1:
        return narrow.get(module.rpartition(".")[2], 1.0)
    return float(weight.element_size())


def _cached(config: Any, models_bytes: int) -> dict[str, Any]:
    """What a request of the full length takes, and how many fit beside the weights, by vLLM's own arithmetic.

    What activations and CUDA graphs take isn't known here: `available_bytes` is an upper bound.
    """
    from vllm.v1.core import kv_cache_utils as cache

    _resolve_blocks(config)
    specs = _specs(config)
    groups = cache.get_kv_cache_groups(config, dict(specs))
    available = _available_bytes(config, models_bytes)
    a_request = cache._max_memory_usage_bytes_from_groups(config, groups) if groups else 0
    a_block = cache._pool_bytes_per_block(config, groups) if groups else 0
    facts = {
        "block_size": config.cache_config.block_size,
        "kv_bytes_per_request": a_request,
        "available_bytes": available,
        "blocks": available // a_block if a_block else None,
        "requests": available / a_request if a_request else None,
        "longest_that_fits": None,
        "has_state": any("Mamba" in type(spec).__name__ for spec in specs.values()),
    }
    if a_request > available > 0:
        facts["longest_that_fits"] = cache._estimate_max_model_len_from_groups(config, groups, available)
    return facts


def _resolve_blocks(config: Any) -> None:
    """Block size and layout, which vLLM sets once its workers have made the model."""
    from vllm.platforms import current_platform
    from vllm.v1.attention.backends.utils import resolve_kv_cache_layout
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
    from vllm.v1.worker.worker_base import get_current_attn_backends, get_supported_kv_cache_layouts

    current_platform.update_block_size_for_backend(config)
    register_all_kvcache_specs(config)
    layouts = [layout.name for layout in get_supported_kv_cache_layouts(get_current_attn_backends(config))]
    resolve_kv_cache_layout(config, [layouts], list(_specs(config).values()))


def _specs(config: Any) -> dict[str, Any]:
    """Cache of each layer that has one of its own. Gemma 4's assistants read the target's (vLLM: Gemma4Speculator)."""
    from vllm.config import get_layers_from_vllm_config
    from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase

    speculative = config.speculative_config
    shares = speculative is not None and speculative.use_gemma4_mtp()
    specs = {}
    for name, layer in get_layers_from_vllm_config(config, AttentionLayerBase).items():
        shared = getattr(layer, "kv_sharing_target_layer_name", None) is not None
        if shared or (shares and _is_of_draft(name, config)):
            continue
        if (spec := layer.get_kv_cache_spec(config)) is not None:
            specs[name] = spec
    return specs


def _is_of_draft(name: str, config: Any) -> bool:
    number = next((int(word) for word in name.split(".") if word.isdecimal()), 0)
    return "mtp" in name or number >= config.model_config.get_total_num_hidden_layers()


def _available_bytes(config: Any, models_bytes: int) -> int:
    """What is left for the cache at the most; where it was told a size, that one."""
    from vllm.platforms import current_platform

    told = config.cache_config.kv_cache_memory_bytes
    if told is not None:
        return int(told)
    return int(current_platform.get_device_total_memory() * config.cache_config.gpu_memory_utilization) - models_bytes


def _kept_warnings() -> list[str]:
    """Those warnings of vLLM from now on in which an argument is judged; each command sets up its loggers anew."""
    kept: list[str] = []
    make = logging.getLogRecordFactory()

    def keeping(*args: Any, **more: Any) -> logging.LogRecord:
        record = make(*args, **more)
        if record.name.startswith("vllm") and record.levelno >= logging.WARNING:
            text = record.getMessage()[:LONGEST_FACT]
            if any(word in text for word in REMARKED) and text not in kept:
                kept.append(text)
        return record

    logging.setLogRecordFactory(keeping)
    return kept


if __name__ == "__main__":
    main()
