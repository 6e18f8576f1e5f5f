"""The shipped models, what identifies each member, and the Triton plug-in of the diffusion cell."""

import importlib.metadata
import shutil
from pathlib import Path

import pytest

from flows.plans import make_plan
from tasks.engine.command import engine_command
from tasks.engine.program import EngineUnavailable
from tasks.family import members
from tasks.family.interpreter import write_backend

SHIPPED_BYTES = 3_000_000
FILE_BYTES = 2**20


def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped members, which is taken for them; its target."""
    shutil.copytree(members.WEIGHTS, tmp_path / "weights")
    monkeypatch.setattr(members, "WEIGHTS", tmp_path / "weights")
    return tmp_path / "weights" / "target"


def test_what_is_shipped_is_whole_and_small_for_any_user_and_tells_of_no_machine() -> None:
    assert [members.why_not(name) for name in members.SHIPPED] == [None] * 4
    paths = [members.WEIGHTS, *members.WEIGHTS.rglob("*")]
    for path in paths:
        wanted = 0o005 if path.is_dir() else 0o004
        assert path.stat().st_mode & wanted == wanted, f"{path} is not for others: a node is another user"
    files = {file: file.read_bytes() for file in paths if file.is_file()}
    assert {file.parent.name for file in files} == {"weights", *members.SHIPPED}
    assert sum(map(len, files.values())) < SHIPPED_BYTES
    for file, data in files.items():
        assert len(data) < FILE_BYTES or file.suffix == ".safetensors"
        assert not [word for word in (b"/root", b"/home", b".cache", b"/tmp") if word in data], file


def test_one_other_byte_is_another_revision(tmp_path: Path) -> None:
    shipped = members.folder_of("target")
    assert members.revision_of("target") == members.digest_of(shipped)
    same, other = (Path(shutil.copytree(shipped, tmp_path / name)) for name in ("same", "other"))
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    assert members.digest_of(same) == members.digest_of(shipped) != members.digest_of(other)


def test_an_edited_trainer_is_another_recipe_and_leaves_what_is_shipped_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = Path(shutil.copytree(members.TRAINER.parent, tmp_path / "family")) / "training"
    monkeypatch.setattr(members, "TRAINER", sources)
    recipe = members.recipe_hash.__wrapped__
    before = recipe()
    for file in sources.glob("*.py"):
        text = file.read_text()
        file.write_text(text + "\n")
        assert (recipe() == before) is (file.name in members.COSMETIC_FILES), file.name
        file.write_text(text)
    assert recipe() == before != recipe(0.01)
    assert {file.name for file in sources.glob("*.py")} >= members.COSMETIC_FILES
    revisions = {member: members.revision_of(member) for member in members.SHIPPED}
    assert members.recipe_hash() not in revisions.values() and len(set(revisions.values())) == 4


def test_what_is_trained_here_is_kept_under_the_recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert members.folder_of("diffusion").parent == tmp_path / "specsweep" / "family" / members.recipe_hash()
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert members.trained_dir().parents[2] == Path.home() / ".cache"
    assert members.trained_dir(0.01) != members.trained_dir()


def test_a_plan_has_each_members_own_revision() -> None:
    cells = [planned.cell for planned in make_plan("demo").cells]
    assert {cell.model.revision for cell in cells} == {members.revision_of("target")}
    drafts = [cell.draft for cell in cells if cell.draft is not None]
    assert all(draft.revision == members.revision_of(str(draft.family_member)) for draft in drafts)
    assert make_plan("demo-diffusion").cells[0].cell.model.revision == members.recipe_hash()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (shutil.rmtree, "'target' is missing"),
        (lambda folder: (folder / "config.json").unlink(), "lacks config.json"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"version"), "a damaged model.safetensors"),
    ],
    ids=["missing", "lacking", "damaged"],
)
def test_a_shipped_member_that_is_damaged_is_neither_planned_nor_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: object, said: str
) -> None:
    cell = make_plan("demo").cells[0].cell
    folder = copied(tmp_path, monkeypatch)
    assert callable(damage)
    damage(folder)
    remedy = rf"{said} in {folder}: run `git checkout tasks/family/weights`"
    with pytest.raises(members.MemberUnavailable, match=remedy):
        make_plan("demo")
    with pytest.raises(EngineUnavailable, match=remedy):
        engine_command(cell, 1, tmp_path)


def test_other_weights_than_were_planned_are_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_plan("demo").cells[0].cell
    (copied(tmp_path, monkeypatch) / "README").write_text("mine")
    with pytest.raises(EngineUnavailable, match=rf"not {cell.model.revision}: plan a new run"):
        engine_command(cell, 1, tmp_path)


def test_a_member_that_was_never_trained_names_the_sweep_that_trains_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cell = make_plan("demo-diffusion").cells[0].cell
    with pytest.raises(EngineUnavailable, match=r"'diffusion' is missing .*: `bin/sweep run demo-diffusion` trains it"):
        engine_command(cell, 1, tmp_path)


def test_a_member_that_there_is_not_is_told_with_those_that_there_are() -> None:
    with pytest.raises(members.MemberUnavailable, match="has no 'drafter': choose one of target, draft, dflash, mtp"):
        members.revision_of("drafter")


def test_the_triton_plug_in_is_found_in_its_folder_and_compiles(tmp_path: Path) -> None:
    environment = write_backend(tmp_path)
    assert (environment["PYTHONPATH"], environment["TRITON_INTERPRET"]) == (str(tmp_path), "1")
    (found,) = importlib.metadata.distributions(path=[str(tmp_path)])
    (entry,) = found.entry_points.select(group="triton.backends")
    assert (entry.name, entry.value) == ("cpu", "triton_cpu_interpreter")
    (plugin,) = found.entry_points.select(group="vllm.general_plugins")
    assert plugin.value == "triton_cpu_interpreter.empty_rows:register"
    for file in tmp_path.rglob("*.py"):
        compile(file.read_text(), str(file), "exec")
