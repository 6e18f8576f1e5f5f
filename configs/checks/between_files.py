"""What must hold within a file and between the files of a sweep, checked before anything is paid for.

Each check yields where something is wrong, and the problem with what would be accepted. The first one is the user's
error (`configs.load`), so a check may rely on the checks before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from configs.cell import PARALLEL, Cell, Draft, Engine, Gpu, Model, Technique, argument
from configs.checks.engine import too_heavy, unmeasured, unserved
from configs.files import Document, Fault, Folder, Library, Loc, accepted
from configs.local_checkpoint import local_folder, why_none
from configs.schema import CellRow, Suite, Sweep, assemble_cell, shape_names
from configs.visits import MIRRORED
from configs.without_weights import KTooLong

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
"""What a cell's command says by itself, and where a user says it. Of an argument given twice the last counts: one in
an engine's or a technique's file would be served under another's label. `--load-format` is ours of dummy weights only.
The commands are made in `tasks/engine/command.py`."""


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


def technique_faults(technique: Technique) -> Iterator[Fault]:
    """What a technique says though its rows say it, or its own file elsewhere."""
    yield from _taken_words("engine_args", technique.engine_args)
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
        flag = word.partition("=")[0].partition(".")[0].replace("_", "-")  # vLLM: --speculative-config.model=...
        if flag in PLACES:
            yield (field, i), f"{word!r} takes the place of what the command says by itself; accepted: {PLACES[flag]}"


AUTO_GPU = "auto"
"""As a sweep's `gpu`: the card that is there, by its name by the driver."""


def model_faults(model: Model) -> Iterator[Fault]:
    """No source of weights or several, real weights of a shape or with a made-up routing, and what only chats have."""
    yield from _source_faults(model)
    for field in () if model.chat else ("reasoning_parser", "chat_template_kwargs"):
        if getattr(model, field):
            yield (field,), f"given, but with `chat: false` nothing is sent as a chat; accepted: no {field}"
    if (model.shape or model.routing) and model.weights == "real":
        yield ("weights",), "a shape has no weights, real ones have a router; accepted: weights: dummy"


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
        if gpu is not None and (problem := too_heavy(cell, gpu)) is not None:
            yield (*here, "model"), problem
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
    for names in PARALLEL:
        if argument(technique.engine_args, *names) is not None:
            problem = f"{technique.name!r} has {names[0]} in its engine_args, and its AR control would have other cards"
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
    if model.weights == "dummy" and argument(cell.engine_words, "--load-format") is not None:
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
    yield from unserved(cell)
    for step in suite.steps:
        if step.why_not(cell) is None and (problem_of := unmeasured(cell, step)) is not None:
            yield (), problem_of


def _room_faults(cell: Cell, suite: Suite) -> Iterator[Fault]:
    """Requests that the suite sends to the cell and that don't fit its `max_model_len`."""
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
        yield () if field is None else (field,), f"{name!r} isn't in {folder}/; {accepted(name, names)}"


def _twice(document: Document, named: list[tuple[Loc, str]]) -> Iterator[Fault]:
    seen: dict[str, Loc] = {}
    for loc, name in named:
        if name in seen:
            problem = f"{name!r} is already on line {document.line(seen[name][:-1])}"
            yield loc, f"{problem}; accepted: a name of its own"
        seen[name] = loc


def _under(here: Loc, faults: Iterator[Fault]) -> Iterator[Fault]:
    return (((*here, *loc), problem) for loc, problem in faults)
