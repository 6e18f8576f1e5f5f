"""What of the family is still to be trained, and how close what was trained here comes to what is shipped."""

import json
from pathlib import Path

import pytest

from tasks.family.members import DONE_FILE, ON_REQUEST, SHIPPED, recipe_hash
from tasks.family.training.build import Figure, as_json, figures, table, verdict
from tasks.family.training.recipe import MEMBERS, missing


def put(out: Path, name: str, **changes: object) -> None:
    (out / name).mkdir(parents=True)
    done = {"name": name, "recipe": recipe_hash(), "sha256": {}, **changes}
    (out / name / DONE_FILE).write_text(json.dumps(done))


def test_every_member_is_shipped_or_trained_on_request() -> None:
    assert sorted(MEMBERS) == sorted((*SHIPPED, *ON_REQUEST))


def test_what_is_whole_and_of_this_recipe_is_not_missing(tmp_path: Path) -> None:
    put(tmp_path, "target")
    put(tmp_path, "draft", recipe="0123456789abcdef")
    put(tmp_path, "mtp", recipe=recipe_hash(0.01))
    assert missing(tmp_path, ["target", "draft", "dflash", "mtp"]) == ["draft", "dflash", "mtp"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_an_unreadable_done_does_not_count(tmp_path: Path, content: str) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / DONE_FILE).write_text(content)
    assert missing(tmp_path, ["target"]) == ["target"]


def test_each_loss_and_score_stands_beside_the_shipped_one(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    put(here, "target", loss=0.0113, scores={"lookup": 1.0, "arith": 0.958})
    put(there, "target", loss=0.0112, scores={"lookup": 1.0, "arith": 0.979})
    put(here, "diffusion", loss=0.5, scores={})
    found = figures(here, ["target", "diffusion"], there)
    assert found == [
        Figure("target", "loss", 0.0113, 0.0112),
        Figure("target", "lookup", 1.0, 1.0),
        Figure("target", "arith", 0.958, 0.979),
    ]
    assert [line.split() for line in table(found).splitlines()[1:3]] == [
        ["target", "loss", "0.0113", "0.0112"],
        ["target", "lookup", "1.0000", "1.0000"],
    ]
    assert verdict(found) == "losses equal within 0.9%, greedy scores within 0.021: as good as shipped"


@pytest.mark.parametrize(
    ("loss", "score", "worse"),
    [(0.5, 1.0, ""), (1.05, 0.93, ""), (1.2, 1.0, "draft's loss"), (1.0, 0.9, "draft's arith")],
)
def test_what_is_worse_than_noise_is_named(loss: float, score: float, worse: str) -> None:
    said = verdict([Figure("draft", "loss", loss, 1.0), Figure("draft", "arith", score, 1.0)])
    assert said.endswith(f"not as good as shipped: {worse}" if worse else ": as good as shipped")


def test_of_what_is_not_shipped_nothing_is_said(tmp_path: Path) -> None:
    put(tmp_path, "diffusion", loss=0.5, scores={})
    assert as_json(figures(tmp_path, ["diffusion"])) is None
