"""What of the family is still to be trained."""

import json
from pathlib import Path

import pytest

from tasks.family.members import DONE_FILE, ON_REQUEST, SHIPPED, recipe_hash
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
