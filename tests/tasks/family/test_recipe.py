"""Where the family is kept and what counts as complete."""

import json
from pathlib import Path

import pytest

from tasks.family import recipe


def put(out: Path, name: str, **changes: object) -> None:
    (out / name).mkdir(parents=True)
    done = {"name": name, "recipe": recipe.recipe_hash(), **changes}
    (out / name / recipe.DONE_FILE).write_text(json.dumps(done))


def test_the_folder_is_named_after_the_recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert recipe.family_dir() == tmp_path / "specsweep" / "family" / recipe.recipe_hash()
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert recipe.family_dir().parents[2] == Path.home() / ".cache"


def test_a_scaled_build_has_another_folder() -> None:
    assert recipe.family_dir(0.01) != recipe.family_dir()


def test_a_complete_member_is_not_missing(tmp_path: Path) -> None:
    put(tmp_path, "target")
    assert recipe.missing(tmp_path, ["target", "mtp"]) == ["mtp"]


def test_a_member_of_another_recipe_is_missing(tmp_path: Path) -> None:
    put(tmp_path, "target", recipe="0123456789abcdef")
    put(tmp_path, "mtp", recipe=recipe.recipe_hash(0.01))
    assert recipe.missing(tmp_path, ["target", "mtp"]) == ["target", "mtp"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_an_unreadable_done_does_not_count(tmp_path: Path, content: str) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / recipe.DONE_FILE).write_text(content)
    assert recipe.missing(tmp_path, ["target"]) == ["target"]


def test_cosmetic_files_do_not_change_the_recipe() -> None:
    sources = {file.name for file in Path(recipe.__file__).parent.glob("*.py")}
    assert sources >= recipe.COSMETIC_FILES
    assert {
        "words.py",
        "tokens.py",
        "target.py",
        "mtp.py",
        "dflash.py",
        "draft.py",
    } <= sources - recipe.COSMETIC_FILES
