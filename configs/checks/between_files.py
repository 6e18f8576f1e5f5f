"""What must hold between the files of a sweep, checked with line numbers before anything is paid for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from configs.assemble import assemble_cell
from configs.cell import (
    DATA_PARALLEL,
    PIPELINE_PARALLEL,
    TENSOR_PARALLEL,
    Cell,
    Draft,
    Engine,
    Gpu,
    Model,
    Technique,
    argument,
)
from configs.checks.engine import too_heavy, unmeasured, unserved
from configs.files import Document, Folder, Library, Loc, accepted
from configs.schema import CellRow, Suite, Sweep
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


AUTO_GPU = "auto"
"""As a sweep's `gpu`: the card that is there, by its name by the driver."""


def check_model(document: Document, model: Model) -> None:
    """Check that a model has exactly one source of weights, and that what is without any says so.

    Raises:
        ConfigError: It has none or two, or real weights of a shape or beside a made-up routing.
    """
    _one_source(document, (), model)
    if (model.shape or model.routing) and model.weights == "real":
        raise document.error(("weights",), "a shape has no weights, real ones have a router; accepted: weights: dummy")


def check_sound(document: Document, here: Loc, problem: str | None) -> None:
    """Check what a file says of itself.

    Raises:
        ConfigError: It has a problem.
    """
    if problem is not None:
        raise document.error(here, problem)


def check_engine(document: Document, engine: Engine) -> None:
    """Check that an engine can be started.

    Raises:
        ConfigError: It names no environment, no command and no image, a command without a program, or an environment
            or a program that has another path wherever one stands.
    """
    if engine.command is not None and not "".join(engine.command[:1]).strip():
        raise document.error(
            ("command",), f"{list(engine.command)} names no program; accepted: e.g. [vllm], or no command"
        )
    if engine.environment is None and engine.command is None and engine.image is None:
        raise document.error((), "nothing to start; accepted: one of environment, command, image")
    places = {"environment": engine.environment, "command": engine.command[0] if engine.command else None}
    for field, place in places.items():
        if "/" in (place or "") and not (place or "").startswith(("/", "~/")):
            problem = f"{place!r} depends on where one stands; accepted: a path that begins with / or ~/"
            raise document.error((field,), problem)


def check_suite(document: Document, suite: Suite) -> None:
    """Check that steps, and the parts of each step, have different names, and that no step reports a problem.

    Raises:
        ConfigError: A name is there twice, or a step reports a problem.
    """
    _different(document, [(("steps", i, "step"), step.step) for i, step in enumerate(suite.steps)])
    for i, step in enumerate(suite.steps):
        _different(document, [(("steps", i, *loc), name) for loc, name in step.named()])
        for loc, problem in step.problems():
            raise document.error(("steps", i, *loc), problem)


def check_sweep(document: Document, sweep: Sweep, library: Library, load_suite: Callable[[str], Suite]) -> None:
    """Check that every name exists, every row makes a cell that can be served, and no cell is there twice.

    Raises:
        ConfigError: For the first thing that is wrong.
    """
    _known(document, ("engine",), "engines", sweep.engine, library)
    _known(document, ("suite",), "suites", sweep.suite, library)
    _check_gpu(document, sweep, library)
    _check_design(document, sweep)
    suite = load_suite(sweep.suite)
    gpu = None if sweep.gpu == AUTO_GPU else library.load("gpus", sweep.gpu, Gpu)
    first_line: dict[str, int] = {}
    for i, row in enumerate(sweep.cells):
        here: Loc = ("cells", i)
        cell = _checked_cell(document, here, row, sweep, library)
        _check_room(document, here, row, cell, suite)
        check_sound(document, (*here, "model"), None if gpu is None else too_heavy(cell, gpu))
        line = document.line(here)
        if cell.cell_key in first_line:
            problem = f"{cell.label} is already on line {first_line[cell.cell_key]}; accepted: one of them"
            raise document.error(here, problem)
        first_line[cell.cell_key] = line


def _check_gpu(document: Document, sweep: Sweep, library: Library) -> None:
    """Check that the GPU has a file, or is the card of this machine where cells run here; and is used at all."""
    is_auto = sweep.gpu == AUTO_GPU
    if not is_auto:
        _known(document, ("gpu",), "gpus", sweep.gpu, library)
    on_cpu = library.load("engines", sweep.engine, Engine).on_cpu
    if on_cpu and (is_auto or library.load("gpus", sweep.gpu, Gpu).is_card):
        raise document.error(("gpu",), f"{sweep.gpu!r} is a card, and {sweep.engine!r} uses none; accepted: cpu")
    if is_auto and sweep.cloud is not None:
        names = ", ".join(library.files("gpus"))
        problem = f"{AUTO_GPU!r} is the card of this machine, and these cells are rented one"
        raise document.error(("gpu",), f"{problem}; accepted: {names}")


def _check_design(document: Document, sweep: Sweep) -> None:
    """Check that a way forwards and back is one machine's, one cell at a time; and that only its way back is cut."""
    if sweep.visits not in MIRRORED:
        if sweep.drop != "never":
            problem = f"{sweep.drop} leaves out the way back, and visits: {sweep.visits} has none"
            raise document.error(("drop",), f"{problem}; accepted: never, or visits: mirrored or balanced")
        return
    if sweep.cloud is not None:
        problem = f"{sweep.visits} needs one machine for all cells, and each cell is rented one of its own"
        raise document.error(("visits",), f"{problem}; accepted: bracketed, single")
    if sweep.concurrency > 1:
        problem = f"{sweep.concurrency} cells at a time have no order to turn round"
        raise document.error(("concurrency",), f"{problem}; accepted: 1 with visits: {sweep.visits}")


def _checked_cell(document: Document, here: Loc, row: CellRow, sweep: Sweep, library: Library) -> Cell:
    """The cell of a row, once its names are known to exist and its technique to have what it needs."""
    _known(document, (*here, "model"), "models", row.model, library)
    _known(document, (*here, "precision"), "precisions", row.precision, library)
    _known(document, (*here, "technique"), "techniques", row.technique, library)
    if row.acceptance is not None:
        _known(document, (*here, "acceptance"), "replays", row.acceptance.replay, library)
    if row.serving is None and sweep.serving is None:
        raise document.error((*here, "serving"), "this key is missing; add it here or to the sweep")
    technique, model = library.load("techniques", row.technique, Technique), library.load("models", row.model, Model)
    _check_technique(document, here, row, technique)
    _check_replay(document, here, row, technique, model)
    if model.held_against is not None:
        _known(document, (*here, "model"), "models", model.held_against, library)
        if library.load("models", model.held_against, Model).weights != model.weights:
            problem = f"{model.name!r} has {model.weights} weights, and its AR {model.held_against!r} has others"
            raise document.error((*here, "model"), f"{problem}; accepted: the same kind of both")
    for name in shape_names(row, library):
        _known(document, here, "shapes", name, library)
    try:
        cell = assemble_cell(sweep, row, library)
    except KTooLong as error:
        raise document.error((*here, "k"), str(error)) from error
    if model.weights == "dummy" and argument(cell.engine_words, "--load-format") is not None:
        problem = (
            f"{model.name!r} has dummy weights, and {sweep.engine!r} or {technique.name!r} loads with --load-format"
        )
        raise document.error((*here, "model"), f"{problem}; accepted: an engine and a technique without it")
    _check_canvas(document, here, cell)
    if (found := unserved(cell)) is not None:
        raise document.error((*here, *found[0]), found[1])
    return cell


def _check_room(document: Document, here: Loc, row: CellRow, cell: Cell, suite: Suite) -> None:
    """Check that every request the suite sends to a cell fits its `max_model_len`, and that its engine can be timed."""
    given = [step for step in suite.steps if step.why_not(cell) is None]
    for step in given:
        if (problem := unmeasured(cell, step)) is not None:
            raise document.error(here, problem)
    for what, tokens in (request for step in given for request in step.longest_requests(cell)):
        if tokens > cell.serving.max_model_len:
            loc = (*here, "serving", "max_model_len") if row.serving else ("serving", "max_model_len")
            problem = f"{cell.serving.max_model_len} is too short for {what} of suite {suite.name!r}"
            raise document.error(loc, f"{problem}; accepted: {tokens} or more")


def _check_technique(document: Document, here: Loc, row: CellRow, technique: Technique) -> None:
    """Check that K and the draft are given where the technique takes them and only there, and that it adds no cards."""
    if technique.takes_k and row.k is None:
        raise document.error((*here, "k"), f"missing; {technique.name!r} needs it: accepted: 1, 2, 3 ...")
    if not technique.takes_k and row.k is not None:
        raise document.error((*here, "k"), f"{row.k} given, but {technique.name!r} has no K; accepted: no k")
    if technique.needs_draft and row.draft is None:
        problem = f"missing; {technique.name!r} needs one: accepted: a hub_id, a family_member or a shape"
        raise document.error((*here, "draft"), problem)
    if not technique.needs_draft and row.draft is not None:
        problem = f"given, but {technique.name!r} has no second checkpoint; accepted: no draft"
        raise document.error((*here, "draft"), problem)
    if row.draft is not None:
        _one_source(document, (*here, "draft"), row.draft)
    for names in (TENSOR_PARALLEL, PIPELINE_PARALLEL, DATA_PARALLEL):
        if argument(technique.engine_args, *names) is not None:
            problem = f"{technique.name!r} has {names[0]} in its engine_args, and its AR control would have other cards"
            raise document.error((*here, "technique"), f"{problem}; accepted: in `args` of the sweep's engine")


def _check_replay(document: Document, here: Loc, row: CellRow, technique: Technique, model: Model) -> None:
    """Check that nothing is made up beside real weights, and that what is made up is something the technique has."""
    synthetic = technique.speculative_config.get("rejection_sample_method") == "synthetic"
    if row.acceptance is not None and not technique.drafts:
        problem = f"given, but {technique.name!r} drafts nothing; accepted: no acceptance"
        raise document.error((*here, "acceptance"), problem)
    if model.weights == "real" and (row.acceptance is not None or synthetic):
        problem = f"{model.name!r} has real weights, and a replayed acceptance would pass for theirs"
        raise document.error((*here, "acceptance"), f"{problem}; accepted: a model with weights: dummy")


def _check_canvas(document: Document, here: Loc, cell: Cell) -> None:
    """Check that steps and canvas are asked of what has one, and steps with its length: vLLM takes them together."""
    lacks = None if cell.technique.denoises else cell.technique.name
    if cell.technique.denoises and cell.model.shape and cell.shape_named(cell.model.shape).canvas_length is None:
        lacks = cell.model.name
    for field, number in (("denoising_steps", cell.denoising_steps), ("canvas_length", cell.canvas_length)):
        if number is not None and lacks is not None:
            problem = f"{number} given, but {lacks!r} has no canvas; accepted: no {field}"
            raise document.error((*here, field), problem)
    if cell.denoising_steps is not None and cell.canvas is None:
        problem = "missing; vLLM takes a number of denoising steps with a canvas' length only"
        raise document.error((*here, "canvas_length"), f"{problem}; accepted: the one of the checkpoint's config.json")


def shape_names(row: CellRow, library: Library) -> Iterator[str]:
    """The shapes that a row's model and its draft name."""
    model = library.load("models", row.model, Model)
    if model.shape is not None:
        yield model.shape
    if row.draft is not None and row.draft.shape is not None:
        yield row.draft.shape


def _one_source(document: Document, here: Loc, what: Model | Draft) -> None:
    """Check that exactly one of `hub_id`, `family_member` and `shape` names the weights."""
    given = [name for name in ("hub_id", "family_member", "shape") if getattr(what, name) is not None]
    if len(given) != 1:
        said = " and ".join(given) or "neither"
        raise document.error(here, f"{said} given; accepted: exactly one of hub_id, family_member, shape")
    if what.hub_id is None and what.revision is not None:
        its_own = "a member of the demo family has its own" if what.family_member else "a shape has none"
        raise document.error((*here, "revision"), f"{what.revision!r} given, but {its_own}; accepted: no revision")


def _known(document: Document, loc: Loc, folder: Folder, name: str, library: Library) -> None:
    names = list(library.files(folder))
    if name not in names:
        raise document.error(loc, f"{name!r} isn't in {folder}/; {accepted(name, names)}")


def _different(document: Document, named: list[tuple[Loc, str]]) -> None:
    seen: dict[str, Loc] = {}
    for loc, name in named:
        if name in seen:
            problem = f"{name!r} is already on line {document.line(seen[name][:-1])}"
            raise document.error(loc, f"{problem}; accepted: a name of its own")
        seen[name] = loc
