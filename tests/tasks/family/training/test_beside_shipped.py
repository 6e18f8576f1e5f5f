"""How close a family that was trained here comes to the shipped one."""

import json
from pathlib import Path

import pytest

from tasks.family.members import DONE_FILE
from tasks.family.training.build import Figure, as_json, figures, table, verdict


def put(out: Path, name: str, loss: float, **scores: float) -> None:
    (out / name).mkdir(parents=True)
    (out / name / DONE_FILE).write_text(json.dumps({"loss": loss, "scores": scores, "sha256": {}}))


def test_each_loss_and_score_stands_beside_the_shipped_one(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    put(here, "target", 0.0113, lookup=1.0, arith=0.958)
    put(there, "target", 0.0112, lookup=1.0, arith=0.979)
    put(here, "diffusion", 0.5)
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
    put(tmp_path, "diffusion", 0.5)
    assert as_json(figures(tmp_path, ["diffusion"])) is None
