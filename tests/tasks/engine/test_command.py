"""What an engine is started with: vLLM and its container, our server around generate, and the folder of a shape."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.cell import Cell, Draft, Technique
from configs.checkout import ROOT
from configs.errors import SpecsweepError
from configs.expand import expand
from configs.load import load_engine, load_shape, load_sweep, load_technique
from configs.local_checkpoint import NoCheckpoint, digest_of
from flows.forecast.estimates import gain_at
from tasks import meters
from tasks.dummy_checkpoint import SPACE, SPECIAL_TOKENS, as_json, learn_merges, shape_digest, write_shape
from tasks.engine import command, container
from tasks.engine.command import engine_command, require_packages
from tasks.engine.machine import (
    NICE,
    NICE_VARIABLE,
    asked_nice,
    cell_workdir,
    give_way,
    shares_processors,
    state_dir,
    the_only_engine,
)
from tasks.engine.program import EngineUnavailable, python_words
from tasks.engine.server import Engine, free_port
from tasks.guards.tokens import dead_draft
from tasks.transformers_engine.arguments import Arguments, parse
from tests.fake_box import FakeBox
from tests.fake_run import FakeRun

PYTHON = "/opt/venv/bin/python"


@pytest.mark.parametrize(("technique", "asked"), [("mtp", True), ("ngram", True), ("ar", False)])
def test_drafts_by_request_are_asked_for_where_something_drafts(tmp_path: Path, technique: str, asked: bool) -> None:
    """vLLM refuses the argument without a speculative config, so it can't be one of the engine's own."""
    argv = engine_command(FakeRun(tmp_path, technique).planned.cell, 1, tmp_path).argv
    assert ("--per-request-spec-decode-metrics" in argv) is asked


@pytest.mark.parametrize(
    ("technique", "field", "value"),
    [
        ("mtp-dynamic-k", "num_speculative_tokens_per_batch_size", [[1, 4, 4], [5, 16, 2], [17, 512, 0]]),
        ("mtp-adaptive", "enable_adaptive_verification", True),
        ("mtp-block", "rejection_sample_method", "block"),
    ],
)
def test_a_techniques_lists_and_switches_reach_vllm(tmp_path: Path, technique: str, field: str, value: object) -> None:
    cell = FakeRun(tmp_path, "mtp").planned.cell.model_copy(update={"technique": load_technique(technique)})
    argv = engine_command(cell, 1, tmp_path).argv
    said = json.loads(argv[argv.index("--speculative-config") + 1])
    assert (said["method"], said["num_speculative_tokens"], said[field]) == ("mtp", 4, value)


@pytest.mark.parametrize("method", ["eagle", "eagle3"])
def test_both_of_eagles_heads_are_called_as_vllm_calls_them_with_their_checkpoint(tmp_path: Path, method: str) -> None:
    technique = Technique.model_validate(load_technique("eagle3").model_dump() | {"name": method, "method": method})
    drafting = {"technique": technique, "k": 3, "draft": Draft(hub_id="some/head", revision="abc")}
    argv = engine_command(FakeRun(tmp_path).planned.cell.model_copy(update=drafting), 1, tmp_path).argv
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == {
        "method": method, "model": "some/head", "revision": "abc", "num_speculative_tokens": 3,
    }  # fmt: skip
    idle = dead_draft(technique, meters.parse("")._replace(drafts=0, accepted_tokens=0))
    assert idle is not None and idle.severity == "rejected", "a head that drafts nothing is broken"
    assert gain_at(method, 1) > 1


@pytest.mark.parametrize("words", [("vllm",), ("docker", "run", "--gpus", "all", "an/image", "vllm")])
def test_the_engine_counts_cards_as_nvidia_smi_does(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Else a row on a host with different cards has another one's name, clock and energy."""
    cell = FakeRun(tmp_path).planned.cell
    served = cell.model_copy(update={"engine": cell.engine.model_copy(update={"command": words})})
    started = engine_command(served, 1, tmp_path)
    assert started.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert ("--env=CUDA_DEVICE_ORDER" in started.argv) is (words[0] == "docker"), "what is named gets in"


@pytest.mark.parametrize(("engine", "compiles"), [("vllm-cpu", False), ("vllm", True)])
def test_cpus_need_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, compiles: bool) -> None:
    monkeypatch.setattr(command, "program", lambda _: ("vllm",))  # neither is installed wherever this runs
    cell = FakeRun(tmp_path).planned.cell
    served = cell.model_copy(update={"engine": load_engine(engine)})
    env = engine_command(served, 1, tmp_path).env
    assert ("TORCHDYNAMO_DISABLE" not in env) is compiles
    assert "TORCHDYNAMO_DISABLE" not in served.canonical_json(), "what it serves is the same"


def cells() -> list[Cell]:
    """Those of the true models, on a Python of the user's own."""
    own = load_engine("transformers").model_copy(update={"command": (PYTHON,), "image": None})
    plan = expand(load_sweep("transformers"))
    return [planned.cell.model_copy(update={"engine": own}) for planned in plan.cells]


def parsed(cell: Cell, folder: Path) -> Arguments:
    argv = engine_command(cell, 8123, folder).argv
    assert argv[:3] == (PYTHON, "-m", "tasks.transformers_engine")
    return parse(argv[3:])


def test_the_server_understands_the_command_of_every_shipped_cell(tmp_path: Path) -> None:
    ar, mtp = (parsed(cell, tmp_path) for cell in cells())
    assert (ar.model, ar.k, ar.assistant_model) == ("google/gemma-4-31B-it", None, None)
    assert (mtp.assistant_model, mtp.num_assistant_tokens, mtp.k) == ("google/gemma-4-31B-it-assistant", 4, 4)
    assert (mtp.served_model_name, mtp.reasoning_parser, mtp.port) == ("gemma-4-31b", "gemma4", 8123)
    assert ar._replace(assistant_model=mtp.assistant_model, num_assistant_tokens=4) == mtp, "and nothing else differs"
    lookup = {"technique": load_technique("prompt-lookup"), "k": 5}
    said = parsed(cells()[0].model_copy(update=lookup), tmp_path)
    assert (said.k, said.prompt_lookup_num_tokens, said.max_matching_ngram_size) == (5, 5, 2), "no second checkpoint"


def test_the_server_is_found_in_the_checkout_wherever_its_cell_has_its_folder(tmp_path: Path) -> None:
    env = engine_command(cells()[0], 1, tmp_path).env
    assert (Path(env["PYTHONPATH"]) / "tasks" / "transformers_engine" / "__main__.py").is_file()
    assert not [name for name in env if name.startswith("VLLM")]


def test_a_container_and_a_python_without_torch_are_told_at_once(tmp_path: Path, node_python: Path) -> None:
    cell = cells()[0]
    boxed, without, nowhere = (
        cell.engine.model_copy(update={"command": words})
        for words in (("docker", "run", "an/image"), (str(node_python),), ("/nowhere/python",))
    )
    with pytest.raises(EngineUnavailable, match="starts a container"):
        engine_command(cell.model_copy(update={"engine": boxed}), 1, tmp_path)
    with pytest.raises(EngineUnavailable, match="has no torch and transformers: install it there"):
        require_packages(without)
    with pytest.raises(EngineUnavailable, match="no '/nowhere/python'"):
        require_packages(nowhere)


def test_without_a_name_the_python_of_the_paths_vllm_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load_engine("transformers")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert python_words(engine) == ("python3",)
    script = tmp_path / "vllm"
    script.write_text("#!/opt/image/bin/python3.12\nimport vllm\n", encoding="utf-8")
    script.chmod(0o755)
    assert python_words(engine) == ("/opt/image/bin/python3.12",)


async def test_a_container_of_a_killed_runner_is_removed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = FakeBox(tmp_path / "box")
    box.docker()
    for name, value in {**box.env, "SPECSWEEP_STATE": str(tmp_path / "state"), "HF_HOME": str(tmp_path / "hf")}.items():
        monkeypatch.setenv(name, value)
    cell = FakeRun(tmp_path).planned.cell
    served = cell.engine.model_copy(update={"command": ("docker", "run", "an/image")})
    workdir, port = cell_workdir("r1", cell.cell_key), free_port()
    left = Engine(engine_command(cell.model_copy(update={"engine": served}), port, workdir), port, workdir, 300)
    said: list[str] = []
    try:
        await left.start(lambda _: None)
        inside = (workdir / "engine.cid").read_text()
        assert Path(f"/proc/{inside}").exists()
        assert left.pids() == [], "the runtime's own process is none of the engine's"
        async with the_only_engine(said.append):
            assert (box.folder / "removed").read_text().split() == [inside]
            assert not list(workdir.glob("engine.c*")), "it is forgotten, too"
    finally:
        left.stop()
    assert "killed runner" in said[0]


def test_what_the_user_says_of_network_and_memory_stands(tmp_path: Path) -> None:
    given = ("podman", "run", "--network=bridge", "--shm-size", "8g", "--rm", "an/image", "vllm")
    words = container.words_inside(given, ["HF_TOKEN", "HF_TOKEN"], [tmp_path / "hub"], tmp_path)
    added = [f"--cidfile={tmp_path}/engine.cid", "--env=HF_TOKEN", f"--volume={tmp_path}/hub:{tmp_path}/hub"]
    assert words == (*given[:2], *added, *given[2:])


@pytest.mark.parametrize("words", [("vllm",), ("/opt/docker/bin/vllm", "run"), ("docker", "compose", "up")])
def test_other_commands_are_no_containers(words: tuple[str, ...]) -> None:
    assert not container.is_container(words)


def test_a_relative_state_folder_is_one_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECSWEEP_STATE", "mine/state")
    monkeypatch.chdir(tmp_path)
    assert state_dir() == tmp_path / "mine" / "state"
    ask = "from tasks.engine.machine import state_dir; print(state_dir())"
    asked = subprocess.run([sys.executable, "-c", ask], cwd=ROOT, capture_output=True, text=True, check=True)
    assert asked.stdout == f"{tmp_path / 'mine' / 'state'}\n"
    monkeypatch.setenv("SPECSWEEP_STATE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert state_dir() == tmp_path / "specsweep" / "state", "an empty variable is the user's cache"


OWN_GROUP = Path("/proc/self/autogroup")
groups_sessions = pytest.mark.skipif(not OWN_GROUP.exists() or not OWN_GROUP.read_text(), reason="this kernel doesn't")


@pytest.fixture
def session() -> Iterator[int]:
    """A process in a session of its own."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process.pid
        process.kill()


def nice_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/autogroup").read_text().split()[-1])


@groups_sessions
def test_a_session_gives_way_and_this_one_stays_as_it_is(session: int, capsys: pytest.CaptureFixture[str]) -> None:
    before = OWN_GROUP.read_text()
    assert asyncio.run(give_way(session, asked_nice())) == NICE
    assert nice_of(session) == NICE
    assert OWN_GROUP.read_text() == before
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and f"nice {NICE}" in said


@groups_sessions
def test_a_user_may_say_how_much_it_gives_way(session: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NICE_VARIABLE, "9")
    assert asyncio.run(give_way(session, asked_nice())) == nice_of(session) == 9


@pytest.mark.parametrize("said", ["much", "-1", "20", ""])
def test_a_nice_value_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv(NICE_VARIABLE, said)
    with pytest.raises(SpecsweepError, match="0 to 19"):
        asked_nice()


@groups_sessions
async def test_an_engine_gives_way_only_once_it_is_healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that yields while it starts, beside a busy session, may not start within its timeout."""
    monkeypatch.setenv("SPECSWEEP_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the fake engine
    cell, port = FakeRun(tmp_path).planned.cell, free_port()
    workdir = cell_workdir("r1", cell.cell_key)
    engine = Engine(engine_command(cell, port, workdir), port, workdir, 300)
    hold, while_starting = tmp_path / "hold", set[int]()
    hold.touch()
    monkeypatch.setenv("FAKE_ENGINE_HOLD", str(hold))

    def look(_: str) -> None:
        while_starting.update(map(nice_of, engine.pids()))
        if while_starting:
            hold.unlink(missing_ok=True)

    try:
        await engine.start(look)
        assert while_starting == {0}
        assert set(map(nice_of, engine.pids())) == {engine.nice} == {NICE}
    finally:
        engine.stop()


def test_where_the_kernel_has_no_groups_that_is_said_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    assert asyncio.run(give_way(gone.pid, NICE)) is None
    assert "does not give way" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("engine", "has_card", "shares"),
    [("vllm-own", False, True), ("vllm-own", True, False), ("vllm-cpu", True, True)],
)
def test_processors_are_shared_without_a_card_and_by_our_engine_for_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, has_card: bool, shares: bool
) -> None:
    if has_card:
        (tmp_path / "nvidia-smi").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shares_processors(load_engine(engine).on_cpu) is shares


def shipped() -> list[Cell]:
    return [planned.cell for planned in expand(load_sweep("shapes")).cells]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_folder_has_the_published_config_and_ids_that_its_tokenizer_has(tmp_path: Path) -> None:
    shape = load_shape("diffusiongemma-26b-a4b")
    folder = write_shape(shape, tmp_path)
    files = {file.name: json.loads(file.read_text()) for file in folder.iterdir()}
    config, vocab = files["config.json"], files["tokenizer.json"]["model"]["vocab"]
    assert config["architectures"] == ["DiffusionGemmaForBlockDiffusion"] and config["canvas_length"] == 256
    assert files["generation_config.json"]["sampler_config"]["entropy_bound"] == 0.1
    for part in (config, config["text_config"], files["generation_config.json"]):
        assert (part["pad_token_id"], part["eos_token_id"], part["bos_token_id"]) == (0, 1, 2)
    assert [vocab[token] for token in SPECIAL_TOKENS] == [0, 1, 2, 3]
    assert sorted(vocab.values()) == list(range(262144)), "every id that the model can draw has a text"


def test_a_folder_is_written_once_and_named_by_what_it_holds(tmp_path: Path) -> None:
    shape = load_shape("gemma-4-31b-assistant")
    folder = write_shape(shape, tmp_path)
    (folder / "seen").touch()
    assert (write_shape(shape, tmp_path) / "seen").exists()
    other = shape.model_copy(update={"config": shape.config | {"backbone_hidden_size": 1}})
    assert write_shape(other, tmp_path) != folder
    assert sorted(tmp_path.iterdir()) == sorted([folder, write_shape(other, tmp_path)]), "nothing half is left"


def test_the_tokenizer_cuts_english_into_words_and_pieces() -> None:
    merges = learn_merges((ROOT / "LICENSE").read_text())
    vocab = as_json(merges, 5000)["model"]["vocab"]
    assert {f"{SPACE}the", f"{SPACE}and", f"{SPACE}of"} <= set(vocab)
    assert all(left in vocab and right in vocab and left + right in vocab for left, right in merges)
    assert len(vocab) == 5000 and merges == learn_merges((ROOT / "LICENSE").read_text())


def test_the_command_of_a_replay_serves_the_shape_and_is_told_the_rates(tmp_path: Path) -> None:
    mtp = next(cell for cell in shipped() if (cell.technique.name, cell.k) == ("mtp", 4))
    command = engine_command(mtp, 1, tmp_path)
    argv = command.argv
    served, told = Path(argv[2]), json.loads(argv[argv.index("--speculative-config") + 1])
    assert json.loads((served / "config.json").read_text())["hidden_size"] == 5376
    assert argv[argv.index("--load-format") + 1] == "dummy" and "--diffusion-config" not in argv
    assert json.loads((Path(told.pop("model")) / "config.json").read_text())["model_type"] == "gemma4_assistant"
    rates = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.787, 0.589, 0.456, 0.346]}
    assert told == {"method": "mtp", "num_speculative_tokens": 4, **rates}
    assert command.model_revision == shape_digest(load_shape("gemma-4-31b"))
    assert command.draft_revision == shape_digest(load_shape("gemma-4-31b-assistant"))
    assert command.env["HF_HUB_OFFLINE"] == "1"


def test_the_command_of_a_diffusion_replay_is_told_canvas_and_steps(tmp_path: Path) -> None:
    diffusion = next(cell for cell in shipped() if cell.denoising_steps == 16)
    argv = engine_command(diffusion, 1, tmp_path).argv
    told = json.loads(argv[argv.index("--diffusion-config") + 1])
    assert told == {"canvas_length": 256, "max_denoising_steps": 16}
    narrower = engine_command(diffusion.model_copy(update={"canvas_length": 128}), 1, tmp_path).argv
    assert json.loads(narrower[-1]) == {"canvas_length": 128, "max_denoising_steps": 16}


def test_a_mixture_of_experts_drafts_with_the_newer_model_runner(tmp_path: Path) -> None:
    mtp = next(cell for cell in shipped() if cell.model.name == "gemma-4-26b-a4b-shape" and cell.k == 4)
    env = engine_command(mtp, 1, tmp_path).env
    assert (env["VLLM_USE_V2_MODEL_RUNNER"], env["VLLM_MOE_ROUTING_SIMULATION_STRATEGY"]) == ("1", "uniform_random")
    dense = next(cell for cell in shipped() if cell.model.name == "gemma-4-31b-shape")
    assert "VLLM_MOE_ROUTING_SIMULATION_STRATEGY" not in engine_command(dense, 1, tmp_path).env


def test_a_folder_is_served_as_it_was_planned_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    planned = FakeRun(tmp_path).planned.cell
    own = {"hub_id": str(folder), "revision": digest_of(folder)}
    cell = planned.model_copy(update={"model": planned.model.model_copy(update=own)})
    found = engine_command(cell, 1, tmp_path)
    assert str(folder) in found.argv and "--revision" not in found.argv and not found.reads_hub
    assert found.model_revision == own["revision"]
    (folder / "config.json").write_text('{"a": 1}', encoding="utf-8")
    with pytest.raises(EngineUnavailable, match="another checkpoint"):
        engine_command(cell, 1, tmp_path)
    (folder / "config.json").unlink()
    with pytest.raises(NoCheckpoint, match=r"has no config\.json"):
        engine_command(cell, 1, tmp_path)
