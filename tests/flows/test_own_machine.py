"""`sweep run` without a cloud, on a machine with a card: what it finds there, or one line on what is missing."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from configs.load import load_engine
from tests.fake_box import FakeBox
from tests.fake_run import QUICK, write_user_configs
from tests.flows.conftest import Finish

ON_THE_PATH = "engine: fake", "engine: vllm-own"


class Own:
    """A machine with a card, and commands there on a sweep of one AR cell for `gpu: auto`."""

    def __init__(self, folder: Path, finish: Finish) -> None:
        self.folder, self.finish, self.box = folder, finish, FakeBox(folder / "box")
        self.box.card()

    def sweep(self, *changes: tuple[str, str], engine: str = "") -> Path:
        """With changes to its text; `engine` is the YAML of its engine."""
        path = write_user_configs(self.folder, "ar", QUICK)
        text = path.read_text()
        for old, new in (("gpu: cpu", "gpu: auto"), *changes):
            assert old in text
            text = text.replace(old, new)
        path.write_text(text)
        if engine:
            (self.folder / "engines" / "fake.yaml").write_text(f"name: fake\nstart_timeout_s: 300\n{engine}\n")
        return path

    def run(self, path: Path, code: int = 0, **env: str) -> str:
        return self.finish("run", path, "--run-id", "r1", code=code, **self.box.env, **env)

    def refused(self, path: Path, words: tuple[str, ...]) -> None:
        said = self.run(path, code=1)
        assert said.startswith("sweep: ") and said.count("\n") == 1, said
        assert all(word in said for word in words), said


@pytest.fixture
def own(tmp_path: Path, finish_sweep: Finish) -> Own:
    return Own(tmp_path, finish_sweep)


@pytest.mark.slow(45)
def test_a_card_and_a_vllm_on_the_path_are_all_it_takes(own: Own) -> None:
    own.box.vllm()
    own.run(own.sweep(ON_THE_PATH))
    frame = pl.read_parquet(own.folder / "store" / "results_consolidated.parquet")
    measured = frame.filter(pl.col("mode") == "fixed").row(0, named=True)
    assert (measured["gpu"], measured["gpu_name"]) == ("h200", "NVIDIA H200")
    assert "other_gpu" not in str(measured["reasons"])
    own.box.vllm("")  # what is measured needs no engine any more
    assert "measured already" in own.run(own.sweep(ON_THE_PATH))


@pytest.mark.slow(36)
def test_the_virtual_environment_that_an_engine_names_serves_with_its_own_programs_first(own: Own) -> None:
    vllm = own.box.vllm(name="venv/bin/vllm")
    vllm.write_text(vllm.read_text().replace("exec ", f'echo "$PATH" > {own.folder}/path\nexec '))
    own.run(own.sweep(engine=f"environment: {vllm.parent.parent}"))
    assert (own.folder / "path").read_text().startswith(f"{vllm.parent}{os.pathsep}")


@pytest.mark.slow(39)
def test_a_container_is_reached_told_and_removed(own: Own) -> None:
    own.box.docker()
    path = own.sweep(engine="command: [docker, run, --gpus, all, an/image]\nenv: {FAKE_ENGINE: honest}")
    home = own.folder / "hub"
    own.run(path, HF_HOME=str(home), HF_TOKEN="hf_canary")
    seen = (own.box.folder / "seen").read_text().splitlines()
    assert f"--volume={home}:{home}" in seen and home.is_dir(), "the daemon would make it as root"
    assert {"FAKE_ENGINE", "HF_TOKEN", "HF_HOME", "VLLM_CACHE_ROOT"} <= set(seen)
    assert "hf_canary" not in " ".join(seen), "a secret goes in by its name: a command line can be read by all"
    removed = (own.box.folder / "removed").read_text().split()
    assert len(removed) == 1 and not Path(f"/proc/{removed[0]}").exists()
    assert not list((own.folder / "state").rglob("engine.c*id")), "nothing is left to remove"


RENTED = "gpu: auto", "gpu: auto\ncloud: {task: h100-spot}"

NO_VLLM = "no 'vllm' in any folder of the PATH (/", "`environment: /path", "command"
OLD = "vLLM 0.24.0", "doesn't know --enable-per-request-metrics", "0.25 or newer"


@pytest.mark.slow(3)
@pytest.mark.parametrize(
    ("version", "card", "change", "words"),
    [
        (None, "NVIDIA H200", ON_THE_PATH, NO_VLLM),
        ("", "NVIDIA H200", ON_THE_PATH, ("vllm --version` failed with code 1", "libcudart.so.13", "mend")),
        ("0.24.0", "NVIDIA H200", ON_THE_PATH, OLD),
        ("0.32.0", "NVIDIA L4", ("gpu: auto", "gpu: h100"), ("h100 was planned", "this is NVIDIA L4", "gpu: auto")),
        ("0.32.0", "NVIDIA Z9", ON_THE_PATH, ("no file has 'NVIDIA Z9' in `reported_as`", "copy one into gpus/")),
        ("0.32.0", "NVIDIA H200", RENTED, ("'auto' is the card of this",)),
    ],
)
def test_what_this_machine_lacks_is_one_line_before_anything_starts(
    own: Own, version: str | None, card: str, change: tuple[str, str], words: tuple[str, ...]
) -> None:
    own.box.card(card)
    if version is not None:
        own.box.vllm(version)
    own.refused(own.sweep(change), words)
    assert not list((own.folder / "store").glob("runs/*"))


TOO_OLD = "vLLM 0.28.0", "doesn't know --per-request-spec-decode-metrics", "install 0.29"
ONE_CARD = "'--gpus' in the engine's command chooses cards", "choose with CUDA_VISIBLE_DEVICES"


@pytest.mark.slow(3)
@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("environment: /no/such/venv", ("no /no/such/venv/bin/vllm", "install vLLM into that environment")),
        ("environment: venv/vllm", ("engines/fake.yaml:3: environment", "begins with / or ~/")),
        ("environment: vllm-nightly", ("no environment 'vllm-nightly'", "as a path, with a /")),
        ("command: [/no/such/vllm]", ("no program /no/such/vllm", "correct `command`")),
        ("command: [docker, run, --gpus, device=1, an/image]", ONE_CARD),
        ("command: [docker, run, an/image]", ("`docker version` failed", "daemon is not running", "join its group")),
        ("command: [vllm]\nargs: [-tp, '2']", ("needs 2 x h200", "CUDA_VISIBLE_DEVICES=0 shows 1 of the 1 cards")),
    ],
)
def test_an_engine_that_is_not_there_is_one_line_with_the_remedy(own: Own, engine: str, words: tuple[str, ...]) -> None:
    own.box.docker()
    (own.box.folder / "broken").write_text("Cannot connect: the daemon is not running")
    own.refused(own.sweep(engine=engine), words)


@pytest.mark.slow(6)
@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("engine_args: [--per-request-spec-decode-metrics=summary]", TOO_OLD),
        ("needs_module: no_such_package", ("technique 'ar'", "has no package 'no_such_package'", "`optional: true`")),
    ],
    ids=["arguments", "package"],
)
def test_what_a_technique_needs_of_its_engine_is_looked_for(own: Own, field: str, words: tuple[str, ...]) -> None:
    own.box.vllm_script("0.28.0")
    (own.folder / "techniques").mkdir()
    (own.folder / "techniques" / "ar.yaml").write_text(f"name: ar\nmethod: ar\n{field}\n")
    own.refused(own.sweep(ON_THE_PATH), words)
    optional = own.sweep(ON_THE_PATH, ("technique: ar}", "technique: ar, optional: true}"))
    said = own.finish("plan", optional, "--json", **own.box.env)
    assert ("no_such_package" in said) == ("package" in field), "left out, with its reason"


@pytest.mark.slow(8)
def test_without_a_driver_a_named_card_is_believed_and_auto_is_not(own: Own) -> None:
    (own.box.folder / "nvidia-smi").unlink()
    assert "gpu: auto found no card here" in own.run(own.sweep(ON_THE_PATH), code=1)
    assert "There is no card here (gpu: auto)" in own.finish("plan", own.sweep(ON_THE_PATH), **own.box.env)
    said = own.run(own.sweep(ON_THE_PATH, ("gpu: auto", "gpu: h100")), code=1)
    assert "no 'vllm' in any folder" in said, "the card was not what stopped it"


def test_the_engine_of_this_machine_asks_for_what_the_shipped_one_does() -> None:
    own, shipped = load_engine("vllm-own"), load_engine("vllm")
    assert (own.args, own.draft_args) == (shipped.args, shipped.draft_args)
