"""A model of one's own: the template, a folder instead of the hub, and a base model."""

import re
from pathlib import Path

import pytest

from configs.checkout import ROOT
from configs.expand import expand
from configs.load import ConfigError, load_sweep
from configs.local_checkpoint import BLOCK_BYTES, BLOCKS
from configs.schema import Plan
from tests.configs.conftest import Write

ROW = "  - {model: my-model, precision: bf16, technique: ar}\n"
MODEL = "name: my-model\nfamily: mine\nhub_id: %s\ntotal_params_b: 1\nactive_params_b: 1\n"
OF_FAMILY = "  - {model: tiny-gemma4, precision: bf16, technique: mtp, k: 4, draft: {family_member: mtp}}\n"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(bytes(2 * BLOCKS * BLOCK_BYTES))
    return folder


def planned(write: Write, sweep_text: str, model: str, sweep: str = "", **changes: str) -> Plan:
    """The plan of a sweep with `model` as my-model.yaml; `changes`: other values of its keys."""
    write(model, "models/my-model.yaml")
    text = sweep_text.replace(OF_FAMILY, "") + ROW + sweep
    for key, value in changes.items():
        text = "\n".join(f"{key}: {value}" if line.startswith(f"{key}:") else line for line in text.splitlines())
    return expand(load_sweep(write(text)))


def test_the_template_is_a_model_that_a_sweep_can_name_with_each_of_its_options(write: Write, sweep_text: str) -> None:
    text = (ROOT / "docs/my-model.yaml").read_text(encoding="utf-8")
    options = [line for line in text.splitlines() if re.match("# [a-z_]+: ", line)]
    assert {"# revision", "# chat"} <= {line.partition(":")[0] for line in options}
    for line in ("", *options):
        cell = planned(write, sweep_text, text.replace(line, line.removeprefix("# "))).cells[-1].cell
        assert cell.model.hub_id == "my-org/my-model"
        assert cell.model.chat == ("chat: false" not in line)


def test_a_folder_is_a_checkpoint_whose_files_are_its_revision(
    write: Write, sweep_text: str, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what training writes into the same folder later is another cell, and a copy elsewhere has that revision."""

    def cell(hub_id: str) -> tuple[str | None, str | None, str]:
        found = planned(write, sweep_text, MODEL % hub_id).cells[-1].cell
        return found.model.hub_id, found.model.revision, found.cell_key

    monkeypatch.setenv("HOME", str(checkpoint.parent))
    before = cell(str(checkpoint))
    assert before[1] is not None and before == cell("~/checkpoint")
    with (checkpoint / "model.safetensors").open("r+b") as weights:
        weights.seek(-1, 2)  # no name and no size tells it
        weights.write(b"x")
    after = cell(str(checkpoint))
    assert after[0] == before[0] and after[1] != before[1] and after[2] != before[2]
    copied = checkpoint.rename(checkpoint.with_name("copied"))
    assert cell(str(copied))[1] == after[1]


RENTED = {"engine": "vllm", "gpu": "h100\ncloud: {task: h100-spot}", "suite": "tiny-quick",
          "serving": "{max_model_len: 4096}"}  # fmt: skip

FOLDERS = {
    "gone": ("/no/such/folder", "", {}, ["my-model.yaml:3: hub_id: '/no/such/folder' isn't a folder", "id of the hub"]),
    "without a config": ("{}/..", "", {}, ["my-model.yaml:3: hub_id", "has no config.json"]),
    "relative": ("./checkpoint", "", {}, ["my-model.yaml:3: hub_id", "where one stands", "begins with / or ~/"]),
    "with a revision": ("{}", "revision: main\n", {}, ["my-model.yaml:6: revision: 'main' given", "no revision"]),
    "rented": ("{}", "", RENTED, ["mine.yaml:", "cells[1]", "rented ones don't have", "without `cloud`"]),
    "thinking without a chat": ("{}", "chat: false\nreasoning_parser: qwen3\n", {},
        ["my-model.yaml:7: reasoning_parser", "chat: false", "accepted: no reasoning_parser"]),
    "a base model of generate()": ("{}", "chat: false\n", {"engine": "transformers-cpu", "suite": "transformers-tiny"},
        ["mine.yaml:", "chat: false", "accepted: an engine of kind vllm"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", FOLDERS)
def test_what_can_not_be_served_from_a_folder_or_as_a_base_model_is_one_line(
    write: Write, sweep_text: str, checkpoint: Path, kind: str
) -> None:
    hub_id, more, changes, parts = FOLDERS[kind]
    with pytest.raises(ConfigError) as caught:
        planned(write, sweep_text, MODEL % hub_id.format(checkpoint) + more, **changes)
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_of_a_base_model_no_evaluation_is_planned_and_the_plan_says_why(write: Write, sweep_text: str) -> None:
    chat, base = (planned(write, sweep_text, MODEL % "me/mine" + f"chat: {chat}\n") for chat in ("true", "false"))
    assert chat.cells[-1].cell.cell_key != base.cells[-1].cell.cell_key
    steps = [{step.step for step in plan.cells[-1].steps} for plan in (chat, base)]
    assert steps[0] - steps[1] == {"eval-tiny"} and {"smoke", "throughput", "parity"} <= steps[1]
    assert [why for _, why in base.left_out] == [
        "eval-tiny: my-model has chat: false: it continues texts, and answers no questions of a chat"
    ]
