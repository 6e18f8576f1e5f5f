"""`sweep run` without a cloud, on a machine with a card: what it finds there, or one line on what is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from configs.load import load_engine
from tests.fake_box import FakeBox
from tests.fake_run import write_user_configs
from tests.flows.conftest import Finish

Write = Callable[..., str]

SUITE = """
name: fake-suite
steps:
  - {step: smoke, items: 2}
  - step: throughput
    prompts: prose
    conditions:
      - {name: short c=1, context_tokens: 64, output_tokens: 64, repeats: 3, stream_requests: 0}
"""

ON_THE_PATH = "engine: fake", "engine: vllm-own"


@pytest.fixture
def box(tmp_path: Path) -> FakeBox:
    box = FakeBox(tmp_path / "box")
    box.card()
    return box


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Write]:
    """Writes a sweep of one AR cell for `gpu: auto` and the engine on the PATH, with changes to its text."""

    def write(*changes: tuple[str, str], engine: str = "") -> str:
        write_user_configs(tmp_path, "ar", SUITE)
        path = tmp_path / "sweep.yaml"
        text = path.read_text().replace("gpu: cpu", "gpu: auto")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path.write_text(text)
        if engine:
            (tmp_path / "engines" / "fake.yaml").write_text(f"name: fake\nstart_timeout_s: 30\n{engine}\n")
        return str(path)

    yield write


def refused(finish_sweep: Finish, box: FakeBox, path: str, words: tuple[str, ...]) -> None:
    """One line that says so."""
    code, said = finish_sweep("run", path, **box.env)
    assert code == 1 and said.startswith("sweep: ") and said.count("\n") == 1, said
    assert all(word in said for word in words), said


def row(folder: Path) -> dict[str, object]:
    frame = pl.read_parquet(folder / "store" / "results_consolidated.parquet")
    return frame.filter(pl.col("mode") == "fixed").row(0, named=True)


@pytest.mark.slow(16)
def test_a_card_and_a_vllm_on_the_path_are_all_it_takes(
    tmp_path: Path, box: FakeBox, sweep: Write, finish_sweep: Finish
) -> None:
    box.vllm()
    code, said = finish_sweep("run", sweep(ON_THE_PATH), "--run-id", "r1", **box.env)
    assert code == 0, said
    measured = row(tmp_path)
    assert (measured["gpu"], measured["gpu_name"]) == ("h200", "NVIDIA H200")
    assert "other_gpu" not in str(measured["reasons"])
    box.vllm("")  # what is measured needs no engine any more
    code, said = finish_sweep("run", sweep(ON_THE_PATH), "--run-id", "r1", **box.env)
    assert code == 0 and "measured already" in said, said


@pytest.mark.slow(13)
def test_the_virtual_environment_that_an_engine_names_serves_with_its_own_programs_first(
    tmp_path: Path, box: FakeBox, sweep: Write, finish_sweep: Finish
) -> None:
    vllm = box.vllm(name="venv/bin/vllm")
    text = vllm.read_text().replace("exec ", f'echo "$PATH" > {tmp_path}/path\nexec ')
    vllm.write_text(text)
    path = sweep(engine=f"environment: {vllm.parent.parent}")
    code, said = finish_sweep("run", path, "--run-id", "r1", **box.env)
    assert code == 0, said
    assert (tmp_path / "path").read_text().startswith(f"{vllm.parent}{os.pathsep}")


@pytest.mark.slow(14)
def test_a_container_is_reached_told_and_removed(
    tmp_path: Path, box: FakeBox, sweep: Write, finish_sweep: Finish
) -> None:
    box.docker()
    path = sweep(engine="command: [docker, run, --gpus, all, an/image]\nenv: {FAKE_ENGINE: honest}")
    home = tmp_path / "hub"
    code, said = finish_sweep("run", path, "--run-id", "r1", **box.env, HF_HOME=str(home), HF_TOKEN="hf_canary")
    assert code == 0, said
    seen = (box.folder / "seen").read_text().splitlines()
    assert f"--volume={home}:{home}" in seen and home.is_dir(), "the daemon would make it as root"
    assert {"FAKE_ENGINE", "HF_TOKEN", "HF_HOME", "VLLM_CACHE_ROOT"} <= set(seen)
    assert "hf_canary" not in " ".join(seen), "a secret goes in by its name: a command line can be read by all"
    removed = (box.folder / "removed").read_text().split()
    assert len(removed) == 1 and not Path(f"/proc/{removed[0]}").exists()
    assert not list((tmp_path / "state").rglob("engine.c*id")), "nothing is left to remove"


RENTED = "gpu: auto", "gpu: auto\ncloud: {task: h100-spot}"

OLD = "vLLM 0.24.0", "doesn't know --enable-per-request-metrics", "0.25 or newer"


@pytest.mark.parametrize(
    ("version", "card", "change", "words"),
    [
        (
            None,
            "NVIDIA H200",
            ON_THE_PATH,
            ("no 'vllm' in any folder of the PATH (/", "`environment: /path", "command"),
        ),
        ("", "NVIDIA H200", ON_THE_PATH, ("vllm --version` failed with code 1", "libcudart.so.13", "mend")),
        ("0.24.0", "NVIDIA H200", ON_THE_PATH, OLD),
        ("0.32.0", "NVIDIA L4", ("gpu: auto", "gpu: h100"), ("h100 was planned", "this is NVIDIA L4", "gpu: auto")),
        ("0.32.0", "NVIDIA Z9", ON_THE_PATH, ("no file has 'NVIDIA Z9' in `reported_as`", "copy one into gpus/")),
        ("0.32.0", "NVIDIA H200", RENTED, ("'auto' is the card of this",)),
    ],
)
def test_what_this_machine_lacks_is_one_line_before_anything_starts(
    tmp_path: Path,
    box: FakeBox,
    sweep: Write,
    finish_sweep: Finish,
    version: str | None,
    card: str,
    change: tuple[str, str],
    words: tuple[str, ...],
) -> None:
    box.card(card)
    if version is not None:
        box.vllm(version)
    refused(finish_sweep, box, sweep(change), words)
    assert not list((tmp_path / "store").glob("runs/*"))


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("environment: /no/such/venv", ("no /no/such/venv/bin/vllm", "install vLLM into that environment")),
        ("environment: venv/vllm", ("engines/fake.yaml:3: environment", "begins with / or ~/")),
        ("environment: vllm-nightly", ("no environment 'vllm-nightly'", "as a path, with a /")),
        ("command: [/no/such/vllm]", ("no program /no/such/vllm", "correct `command`")),
        (
            "command: [docker, run, --gpus, device=1, an/image]",
            ("'--gpus' in the engine's command chooses cards", "choose with CUDA_VISIBLE_DEVICES"),
        ),
        ("command: [docker, run, an/image]", ("`docker version` failed", "daemon is not running", "join its group")),
        ("command: [vllm]\nargs: [-tp, '2']", ("needs 2 x h200", "CUDA_VISIBLE_DEVICES=0 shows 1 of the 1 cards")),
    ],
)
def test_an_engine_that_is_not_there_is_one_line_with_the_remedy(
    box: FakeBox, sweep: Write, finish_sweep: Finish, engine: str, words: tuple[str, ...]
) -> None:
    box.docker()
    (box.folder / "broken").write_text("Cannot connect: the daemon is not running")
    refused(finish_sweep, box, sweep(engine=engine), words)


WITH_ARGUMENTS = """name: ar
method: ar
engine_args: [--per-request-spec-decode-metrics=summary]
"""

WITH_A_PACKAGE = """name: ar
method: ar
needs_module: no_such_package
"""


@pytest.mark.parametrize(
    ("technique", "words"),
    [
        (WITH_ARGUMENTS, ("vLLM 0.28.0", "doesn't know --per-request-spec-decode-metrics", "install 0.29")),
        (WITH_A_PACKAGE, ("technique 'ar'", "has no package 'no_such_package'", "`optional: true`")),
    ],
)
def test_what_a_technique_needs_of_its_engine_is_looked_for(
    tmp_path: Path, box: FakeBox, sweep: Write, finish_sweep: Finish, technique: str, words: tuple[str, ...]
) -> None:
    box.vllm_script("0.28.0")
    (tmp_path / "techniques").mkdir()
    (tmp_path / "techniques" / "ar.yaml").write_text(technique)
    refused(finish_sweep, box, sweep(ON_THE_PATH), words)
    optional = ("technique: ar}", "technique: ar, optional: true}")
    code, said = finish_sweep("plan", sweep(ON_THE_PATH, optional), "--json", **box.env)
    assert code == 0 and ("no_such_package" in said) == ("package" in technique), "left out, with its reason"


def test_without_a_driver_a_named_card_is_believed_and_auto_is_not(
    box: FakeBox, sweep: Write, finish_sweep: Finish
) -> None:
    (box.folder / "nvidia-smi").unlink()
    code, said = finish_sweep("run", sweep(ON_THE_PATH), **box.env)
    assert code == 1 and "gpu: auto found no card here" in said, said
    code, said = finish_sweep("plan", sweep(ON_THE_PATH), **box.env)
    assert code == 0 and "There is no card here (gpu: auto)" in said, said
    code, said = finish_sweep("run", sweep(ON_THE_PATH, ("gpu: auto", "gpu: h100")), **box.env)
    assert code == 1 and "no 'vllm' in any folder" in said, "the card was not what stopped it"


def test_the_engine_of_this_machine_asks_for_what_the_shipped_one_does() -> None:
    own, shipped = load_engine("vllm-own"), load_engine("vllm")
    assert (own.args, own.draft_args) == (shipped.args, shipped.draft_args)
