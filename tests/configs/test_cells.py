"""Cell keys: the same for the same cell however it is written, another for whatever changes it."""

from collections.abc import Callable

import pytest

from configs.expand import expand
from configs.load import load_sweep

Write = Callable[..., str]


def keys(path: str) -> list[str]:
    return [planned.cell.cell_key for planned in expand(load_sweep(path)).cells]


def test_the_order_of_keys_and_the_style_of_the_yaml_do_not_change_a_key(write: Write, sweep_text: str) -> None:
    reordered = """\
cells:
  - technique: ar
    precision: bf16
    model: tiny-gemma4
  - draft:
      family_member: mtp
    k: 4
    technique: mtp
    precision: "bf16"
    model: tiny-gemma4
suite: tiny-quick
serving: {prefix_cache: false, max_model_len: 2048}
gpu: cpu
engine: vllm-cpu
name: mine
"""
    assert keys(write(sweep_text)) == keys(write(reordered))


def test_the_name_suite_and_gpu_of_a_sweep_are_no_part_of_a_key(write: Write, sweep_text: str) -> None:
    write("name: desk\nbandwidth_gb_s: 80\n", "gpus/desk.yaml")
    other = sweep_text.replace("name: mine", "name: other").replace("suite: tiny-quick", "suite: demo")
    assert keys(write(sweep_text)) == keys(write(other.replace("gpu: cpu", "gpu: desk")))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("k: 4", "k: 3"),
        ("max_model_len: 2048", "max_model_len: 2049"),
        ("precision: bf16, technique: mtp", "precision: int8, technique: mtp"),
        ("2048}", "2048, prefix_cache: true}"),
        ("r: mtp}", "r: mtp2}"),
    ],
)
def test_whatever_changes_what_is_served_changes_the_key(write: Write, sweep_text: str, old: str, new: str) -> None:
    assert old in sweep_text
    assert keys(write(sweep_text))[1] != keys(write(sweep_text.replace(old, new)))[1]


def test_cells_keep_the_order_of_the_file(write: Write, sweep_text: str) -> None:
    first, second = sweep_text.splitlines()[-2:]
    turned = sweep_text.replace(f"{first}\n{second}", f"{second}\n{first}")
    assert keys(write(turned)) == keys(write(sweep_text))[::-1]


def test_files_beside_the_users_sweep_come_before_ours_and_add_to_them(write: Write, sweep_text: str) -> None:
    write(
        "name: tiny-gemma4\nfamily: mine\nhub_id: me/mine\ntotal_params_b: 1\nactive_params_b: 1\n",
        "models/tiny-gemma4.yaml",
    )
    write("name: own\nfamily: mine\nhub_id: me/own\ntotal_params_b: 1\nactive_params_b: 1\n", "models/own.yaml")
    sweep = sweep_text + "  - {model: own, precision: bf16, technique: ar}\n"
    models = [planned.cell.model for planned in expand(load_sweep(write(sweep))).cells]
    assert [model.hub_id for model in models] == ["me/mine", "me/mine", "me/own"]
    assert [model.revision for model in models] == [None, None, None]
