"""What must hold within a file and between the files of a sweep, checked before anything is paid for.

Each check yields where something is wrong, and the problem with what would be accepted. The first one is the user's
error (`configs.load`), so a check may rely on the checks before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from configs.cell import PARALLEL, Cell, Draft, Engine, Gpu, Model, Technique, argument
from configs.checks.drafting import drafting_faults, method_faults
from configs.checks.engine import unfit, unmeasured, unserved
from configs.files import Document, Fault, Folder, Library, Loc, accepted
from configs.local_checkpoint import local_folder, why_none
from configs.schema import CellRow, Reference, Suite, Sweep, assemble_cell, shape_names
from configs.visits import MIRRORED
from configs.vllm_arguments import PINNED, BadArguments, named, normal, resolve, spellings
from configs.without_weights import KTooLong

_SERVING, _MODEL, _CHOSEN = "in `serving`, as ", "in the model's file, as ", "none: it is chosen for each start"
_PRECISION, _TECHNIQUE = "in the precision's file, as ", "in the technique's file, as "
_ROW, _LOOPBACK = "in the row, as ", "none: the client speaks plain HTTP on loopback"

PLACES: Mapping[str, str] = {
    "host": _CHOSEN,
    "port": _CHOSEN,
    "served_model_name": _CHOSEN,
    "model": f"{_MODEL}hub_id",
    "hf_config_path": f"{_MODEL}hub_id",
    "revision": f"{_MODEL}revision",
    "reasoning_parser": f"{_MODEL}reasoning_parser",
    "max_model_len": f"{_SERVING}max_model_len",
    "max_num_seqs": f"{_SERVING}max_num_seqs",
    "gpu_memory_utilization": f"{_SERVING}gpu_memory_utilization",
    "enable_prefix_caching": f"{_SERVING}prefix_cache",
    "quantization": f"{_PRECISION}quantization",
    "quantization_config": f"{_PRECISION}quantization",
    "dtype": f"{_PRECISION}dtype",
    "speculative_config": f"{_TECHNIQUE}speculative_config",
    "spec_method": f"{_TECHNIQUE}method",
    "spec_model": f"{_ROW}draft",
    "spec_tokens": f"{_ROW}k",
    "diffusion_config": f"{_ROW}denoising_steps or canvas_length",
    "config": "its lines as words: a file would be no part of the cell",
    "disable_log_stats": "without it: speeds are held against these counters",
    "api_key": _LOOPBACK,
    "root_path": _LOOPBACK,
    "uds": _LOOPBACK,
    "ssl_keyfile": _LOOPBACK,
    "ssl_certfile": _LOOPBACK,
    "ssl_ca_certs": _LOOPBACK,
    "ssl_cert_reqs": _LOOPBACK,
    "ssl_ciphers": _LOOPBACK,
    "enable_ssl_refresh": _LOOPBACK,
    "headless": "without it: there would be no server to ask",
    "grpc": _LOOPBACK,
}
"""Arguments of `vllm serve` that aren't an engine's or a technique's to give, and where a user says such a thing. What
a cell's command says by itself would be served under another's label: of an argument given twice the last counts. The
others make a measurement impossible. `load_format` is ours of dummy weights only."""

GENERATE_PLACES: Mapping[str, str] = {
    "--assistant-model": f"{_ROW}draft",
    "--assistant-revision": f"{_ROW}draft",
    "--num-assistant-tokens": f"{_ROW}k",
    "--prompt-lookup-num-tokens": f"{_ROW}k",
}
"""The same of our server around `generate`, whose other arguments have vLLM's names."""

KEY_VARIABLE = "VLLM_API_KEY"


def engine_faults(engine: Engine) -> Iterator[Fault]:
    """An engine that can't be started from wherever one stands, or whose arguments say what its cells' commands say."""
    if engine.command is not None and not "".join(engine.command[:1]).strip():
        yield ("command",), f"{list(engine.command)} names no program; accepted: e.g. [vllm], or no command"
    if engine.environment is None and engine.command is None and engine.image is None:
        yield (), "nothing to start; accepted: one of environment, command, image"
    places = {"environment": engine.environment, "command": engine.command[0] if engine.command else None}
    for field, place in places.items():
        if "/" in (place or "") and not (place or "").startswith(("/", "~/")):
            yield (field,), f"{place!r} depends on where one stands; accepted: a path that begins with / or ~/"
    yield from _taken_words("args", engine.args)
    yield from _taken_words("draft_args", engine.draft_args)
    yield from _taken_variables("env", engine.env)
    if engine.kind == "vllm":
        yield from _misspelt("args", engine.args, is_pinned=engine.is_pinned)
        yield from _misspelt("draft_args", engine.draft_args, is_pinned=engine.is_pinned)


def technique_faults(technique: Technique) -> Iterator[Fault]:
    """What a technique says though its rows say it, or its own file elsewhere."""
    yield from method_faults(technique)
    yield from _taken_words("engine_args", technique.engine_args)
    yield from _taken_variables("engine_env", technique.engine_env)
    places = {"method": "as method of this file"}
    if technique.needs_draft:
        places |= {"model": "in the row, as draft", "revision": "in the row, as revision of its draft"}
    if technique.takes_k:
        places["num_speculative_tokens"] = "in the row, as k"
    for key, place in places.items():
        if key in technique.speculative_config:
            problem = f"{technique.speculative_config[key]!r} would be served under another's label"
            yield ("speculative_config", key), f"{problem}; accepted: {place}"


def _taken_words(field: str, words: Sequence[str]) -> Iterator[Fault]:
    for i, word in enumerate(words):
        flag = word.partition("=")[0]
        if word.startswith("-") and (two := flag.split())[1:]:
            accepted_words = ", ".join(map(repr, (two[0], " ".join(two[1:]))))
            yield (field, i), f"{word!r} is one word with a blank in its flag; accepted: two, {accepted_words}"
        place = PLACES.get(named(word) or "") or GENERATE_PLACES.get(flag.replace("_", "-"))
        if place is not None:
            yield (field, i), f"{word!r} takes the place of what the command says by itself; accepted: {place}"


def _misspelt(field: str, words: Sequence[str], *, is_pinned: bool) -> Iterator[Fault]:
    """What the pinned release's parser refuses; another release may know more."""
    try:
        given = resolve(tuple(words))
    except BadArguments as error:
        yield (field,), f"vLLM's parser says: {error}; accepted: each flag in full, with its value"
        return
    hidden = set(given.values) & set(PLACES) - {named(word) for word in words}
    for name in sorted(hidden):  # as in -qfp8
        yield (field,), f"{name} is given in one word with its flag; accepted: {PLACES[name]}"
    unknown = next((word for word in given.unknown if word.startswith("-")), None)
    if is_pinned and unknown is not None:
        close = get_close_matches(unknown.partition("=")[0], spellings(), n=1)
        meant = f"{close[0]}, or without it" if close else "without it"
        i = next(i for i, word in enumerate(words) if unknown in normal(word))
        yield (field, i), f"{words[i]!r} is no argument of vLLM {PINNED}; accepted: {meant}"


def _taken_variables(field: str, env: Mapping[str, str]) -> Iterator[Fault]:
    if KEY_VARIABLE in env:
        yield (field, KEY_VARIABLE), f"{KEY_VARIABLE} would lock out the client; accepted: without it"


AUTO_GPU = "auto"
"""As a sweep's `gpu`: the card that is there, by its name by the driver."""


def model_faults(model: Model) -> Iterator[Fault]:
    """No or several sources of weights, real ones of a shape or with a made-up routing, and what only chats have."""
    yield from _source_faults(model)
    for field in () if model.chat else ("reasoning_parser", "chat_template_kwargs"):
        if getattr(model, field):
            yield (field,), f"given, but with `chat: false` nothing is sent as a chat; accepted: no {field}"
    if (model.shape or model.routing) and model.weights == "real":
        yield ("weights",), "a shape has no weights, real ones have a router; accepted: weights: dummy"
    if model.kv is not None:
        yield from model.kv.faults()


def suite_faults(suite: Suite, document: Document) -> Iterator[Fault]:
    """Steps, or parts of a step, of one name; and what steps say of themselves."""
    yield from _twice(document, [(("steps", i, "step"), step.step) for i, step in enumerate(suite.steps)])
    for i, step in enumerate(suite.steps):
        yield from _twice(document, [(("steps", i, *loc), name) for loc, name in step.named()])
        yield from _under(("steps", i), step.problems())


def sweep_faults(
    sweep: Sweep, document: Document, library: Library, load_suite: Callable[[str], Suite]
) -> Iterator[Fault]:
    """Names that don't exist, rows that make no cell that can be served, cells that are there twice.

    Raises `ConfigError` where a file that is named is wrong.
    """
    yield from _unknown("engine", "engines", sweep.engine, library)
    yield from _unknown("suite", "suites", sweep.suite, library)
    yield from _gpu_faults(sweep, library)
    yield from _design_faults(sweep)
    suite = load_suite(sweep.suite)
    gpu = None if sweep.gpu == AUTO_GPU else library.load("gpus", sweep.gpu, Gpu)
    first_line: dict[str, int] = {}
    for i, row in enumerate(sweep.cells):
        here: Loc = ("cells", i)
        yield from _under(here, _row_faults(row, sweep, library))
        try:
            cell = assemble_cell(sweep, row, library)
        except KTooLong as error:
            yield (*here, "k"), str(error)
            return
        yield from _under(here, _cell_faults(cell, suite))
        for source in (cell.model, cell.draft) if sweep.cloud else ():
            if source is not None and local_folder(source.hub_id) is not None:
                what = f"{source.hub_id!r} is a folder of this machine, which rented ones don't have"
                yield here, f"{what}; accepted: an id of the hub, or a sweep without `cloud`"
        room = (*here, "serving", "max_model_len") if row.serving else ("serving", "max_model_len")
        yield from _under(room, _room_faults(cell, suite))
        for loc, problem in unfit(cell, gpu) if gpu is not None else ():
            yield (room if loc == ("serving", "max_model_len") else (*here, *loc)), problem
        if cell.cell_key in first_line:
            yield here, f"{cell.label} is already on line {first_line[cell.cell_key]}; accepted: one of them"
        first_line[cell.cell_key] = document.line(here)


def _gpu_faults(sweep: Sweep, library: Library) -> Iterator[Fault]:
    """A GPU has a file, or is the card of this machine where cells run here; and it is used at all."""
    is_auto = sweep.gpu == AUTO_GPU
    if not is_auto:
        yield from _unknown("gpu", "gpus", sweep.gpu, library)
    on_cpu = library.load("engines", sweep.engine, Engine).on_cpu
    if on_cpu and (is_auto or library.load("gpus", sweep.gpu, Gpu).is_card):
        yield ("gpu",), f"{sweep.gpu!r} is a card, and {sweep.engine!r} uses none; accepted: cpu"
    if is_auto and sweep.cloud is not None:
        problem = f"{AUTO_GPU!r} is the card of this machine, and these cells are rented one"
        yield ("gpu",), f"{problem}; accepted: {', '.join(library.files('gpus'))}"


def _design_faults(sweep: Sweep) -> Iterator[Fault]:
    """A way forwards and back is one machine's, one cell at a time; only its way back is cut."""
    if sweep.visits not in MIRRORED:
        if sweep.drop != "never":
            problem = f"{sweep.drop} leaves out the way back, and visits: {sweep.visits} has none"
            yield ("drop",), f"{problem}; accepted: never, or visits: mirrored or balanced"
        return
    if sweep.cloud is not None:
        problem = f"{sweep.visits} needs one machine for all cells, and each cell is rented one of its own"
        yield ("visits",), f"{problem}; accepted: bracketed, single"
    if sweep.concurrency > 1:
        problem = f"{sweep.concurrency} cells at a time have no order to turn round"
        yield ("concurrency",), f"{problem}; accepted: 1 with visits: {sweep.visits}"


def _row_faults(row: CellRow, sweep: Sweep, library: Library) -> Iterator[Fault]:
    """Names that don't exist, and a technique without what it needs."""
    yield from _unknown("model", "models", row.model, library)
    yield from _unknown("precision", "precisions", row.precision, library)
    yield from _unknown("technique", "techniques", row.technique, library)
    if row.acceptance is not None:
        yield from _unknown("acceptance", "replays", row.acceptance.replay, library)
    if row.serving is None and sweep.serving is None:
        yield ("serving",), "this key is missing; add it here or to the sweep"
    technique, model = library.load("techniques", row.technique, Technique), library.load("models", row.model, Model)
    yield from _of_technique(row, technique)
    yield from _replay_faults(row, technique, model)
    if model.held_against is not None:
        yield from _unknown("model", "models", model.held_against, library)
        held = library.load("models", model.held_against, Model)
        for what, own, other in (("weights", model.weights, held.weights), ("chat", model.chat, held.chat)):
            if own != other:
                problem = f"{model.name!r} has {what}: {own}, and its AR {model.held_against!r} has {other}"
                yield ("model",), f"{problem}; accepted: the same kind of both"
    for name in shape_names(model, row.draft):
        yield from _unknown(None, "shapes", name, library)
    if row.held_against is not None:
        yield from _under(("held_against",), _reference_faults(row.held_against, row, sweep, library))


def _reference_faults(asked: Reference, row: CellRow, sweep: Sweep, library: Library) -> Iterator[Fault]:
    """A reference is an AR row of this sweep, without a reference of its own."""
    techniques = library.files("techniques")
    ar = {
        (each.model, each.precision)
        for each in sweep.cells
        if each.technique in techniques and library.load("techniques", each.technique, Technique).is_baseline
        if each.held_against is None and each is not row
    }
    if (asked.model, asked.precision) not in ar:
        rows = "; ".join(f"{{model: {model}, precision: {precision}}}" for model, precision in sorted(ar))
        problem = f"no AR row of {asked.model!r} in {asked.precision!r} that is held against nothing itself"
        yield (), f"{problem}; accepted: {rows or 'none: the sweep has no such row'}"


def _of_technique(row: CellRow, technique: Technique) -> Iterator[Fault]:
    """K and the draft are given where the technique takes them and only there, and it adds no cards."""
    if technique.takes_k and row.k is None:
        yield ("k",), f"missing; {technique.name!r} needs it: accepted: 1, 2, 3 ..."
    if not technique.takes_k and row.k is not None:
        yield ("k",), f"{row.k} given, but {technique.name!r} has no K; accepted: no k"
    if technique.needs_draft and row.draft is None:
        yield ("draft",), f"missing; {technique.name!r} needs one: accepted: a hub_id, a family_member or a shape"
    if not technique.needs_draft and row.draft is not None:
        yield ("draft",), f"given, but {technique.name!r} has no second checkpoint; accepted: no draft"
    if row.draft is not None:
        yield from _under(("draft",), _source_faults(row.draft))
    for name in PARALLEL:
        if argument(technique.engine_args, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            problem = f"{technique.name!r} has {flag} in its engine_args, and its AR control would have other cards"
            yield ("technique",), f"{problem}; accepted: in `args` of the sweep's engine"


def _replay_faults(row: CellRow, technique: Technique, model: Model) -> Iterator[Fault]:
    """Nothing is made up next to real weights, and what is made up is something that the technique has."""
    synthetic = technique.speculative_config.get("rejection_sample_method") == "synthetic"
    if row.acceptance is not None and not technique.drafts:
        yield ("acceptance",), f"given, but {technique.name!r} drafts nothing; accepted: no acceptance"
    if model.weights == "real" and (row.acceptance is not None or synthetic):
        problem = f"{model.name!r} has real weights, and a replayed acceptance would pass for theirs"
        yield ("acceptance",), f"{problem}; accepted: a model with weights: dummy"


def _cell_faults(cell: Cell, suite: Suite) -> Iterator[Fault]:
    """What its engine can't load, serve or time. Steps and canvas are asked of what has one, and together: as vLLM."""
    model, technique, engine = cell.model, cell.technique, cell.engine
    if model.weights == "dummy" and argument(cell.engine_words, "load_format") is not None:
        loads = f"{engine.name!r} or {technique.name!r} loads with --load-format"
        problem = f"{model.name!r} has dummy weights, and {loads}"
        yield ("model",), f"{problem}; accepted: an engine and a technique without it"
    lacks = None if technique.denoises else technique.name
    if technique.denoises and model.shape and cell.shape_named(model.shape).canvas_length is None:
        lacks = model.name
    for field, number in (("denoising_steps", cell.denoising_steps), ("canvas_length", cell.canvas_length)):
        if number is not None and lacks is not None:
            yield (field,), f"{number} given, but {lacks!r} has no canvas; accepted: no {field}"
    if cell.denoising_steps is not None and cell.canvas is None:
        problem = "missing; vLLM takes a number of denoising steps with a canvas' length only"
        yield ("canvas_length",), f"{problem}; accepted: the one of the checkpoint's config.json"
    if cell.precision.experts_only and not model.is_moe:
        problem = f"{cell.precision.name!r} is made of experts alone, and {model.name!r} is dense"
        accepted_are = "accepted: int8-checkpoint with a model that is stored so, or fp8"
        yield ("precision",), f"{problem}: it would stay in 16 bits; {accepted_are}"
    yield from unserved(cell)
    yield from drafting_faults(cell)
    for step in suite.steps:
        if step.why_not(cell) is None and (problem_of := unmeasured(cell, step)) is not None:
            yield (), problem_of


def _room_faults(cell: Cell, suite: Suite) -> Iterator[Fault]:
    """A `max_model_len` that vLLM refuses for the model, and requests of the suite that don't fit it."""
    made_for, asked = cell.model.context_tokens, cell.serving.max_model_len
    if made_for is not None and asked > made_for:
        problem = f"{asked} is longer than the {made_for} tokens that {cell.model.name!r} was made for"
        yield (), f"{problem}; accepted: up to {made_for}, or another context_tokens in the model's file"
    for step in suite.steps:
        for what, tokens in step.longest_requests(cell) if step.why_not(cell) is None else ():
            if tokens > cell.serving.max_model_len:
                problem = f"{cell.serving.max_model_len} is too short for {what} of suite {suite.name!r}"
                yield (), f"{problem}; accepted: {tokens} or more"


def _source_faults(what: Model | Draft) -> Iterator[Fault]:
    """Exactly one of `hub_id`, `family_member` and `shape` names the weights."""
    given = [name for name in ("hub_id", "family_member", "shape") if getattr(what, name) is not None]
    if len(given) != 1:
        said = " and ".join(given) or "neither"
        yield (), f"{said} given; accepted: exactly one of hub_id, family_member, shape"
    folder = local_folder(what.hub_id)
    if folder is not None and (why := why_none(folder)) is not None:
        yield ("hub_id",), f"{what.hub_id!r} {why}; accepted: a folder with a checkpoint, or an id of the hub"
    if (what.hub_id or "").startswith("."):
        problem = f"{what.hub_id!r} depends on where one stands"
        yield ("hub_id",), f"{problem}; accepted: an id of the hub, or a path that begins with / or ~/"
    if (what.hub_id is None or folder is not None) and what.revision is not None:
        its_own = "a shape has none" if what.shape else "a folder or a member of the demo family has its own"
        yield ("revision",), f"{what.revision!r} given, but {its_own}; accepted: no revision"


def _unknown(field: str | None, folder: Folder, name: str, library: Library) -> Iterator[Fault]:
    names = list(library.files(folder))
    if name not in names:
        said = accepted(name, names, called=library.called(folder))
        yield () if field is None else (field,), f"{name!r} isn't in {folder}/; {said}"


def _twice(document: Document, names: list[tuple[Loc, str]]) -> Iterator[Fault]:
    seen: dict[str, Loc] = {}
    for loc, name in names:
        if name in seen:
            problem = f"{name!r} is already on line {document.line(seen[name][:-1])}"
            yield loc, f"{problem}; accepted: a name of its own"
        seen[name] = loc


def _under(here: Loc, faults: Iterator[Fault]) -> Iterator[Fault]:
    return (((*here, *loc), problem) for loc, problem in faults)
