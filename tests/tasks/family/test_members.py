"""The family: its task as text, the shipped models and what identifies each, and what is still to be trained."""

import importlib.metadata
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.checkout import ROOT
from flows.plans import make_plan
from tasks.engine.command import engine_command
from tasks.engine.program import EngineUnavailable
from tasks.family import members, words
from tasks.family.interpreter import write_backend
from tasks.family.members import DONE_FILE, ON_REQUEST, SHIPPED, recipe_hash
from tasks.family.training.build import Figure, as_json, figures, table, verdict
from tasks.family.training.recipe import MEMBERS, missing
from tests.busy_machine import PATIENCE_S

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


def test_an_edited_trainer_is_another_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_damaged_member_is_neither_planned_nor_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object], said: str
) -> None:
    cell = make_plan("demo").cells[0].cell
    folder = copied(tmp_path, monkeypatch)
    damage(folder)
    remedy = rf"{said} in {folder}: run `git checkout tasks/family/weights`"
    with pytest.raises(members.MemberUnavailable, match=remedy):
        make_plan("demo")
    with pytest.raises(EngineUnavailable, match=remedy):
        engine_command(cell, 1, tmp_path)


def test_what_was_not_planned_or_trained_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = make_plan("demo").cells[0].cell
    (copied(tmp_path, monkeypatch) / "README").write_text("mine")
    with pytest.raises(EngineUnavailable, match=rf"not {cell.model.revision}: plan a new run"):
        engine_command(cell, 1, tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cell = make_plan("demo-diffusion").cells[0].cell
    with pytest.raises(EngineUnavailable, match=r"'diffusion' is missing .*: `bin/sweep run demo-diffusion` trains it"):
        engine_command(cell, 1, tmp_path)
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


def test_questions_follow_from_the_seed_with_an_id_of_the_prompt_and_their_letter_marks_the_right_option() -> None:
    drawn = words.questions(200, seed=0)
    assert drawn == words.questions(200, seed=0) != words.questions(200, seed=2)
    assert len({question.prompt for question in drawn}) == 200
    assert [question.kind for question in drawn[:4]] == ["lookup", "arith", "lookup", "arith"]
    assert {question.answer for question in drawn} == set("ABCD")
    several = [question for seed in range(5) for question in words.questions(100, seed)]
    assert len({q.item_id for q in several}) == len({q.prompt for q in several})
    assert words.questions(1, seed=7)[0].item_id == words.questions(9, seed=7)[0].item_id
    for question in words.questions(100, seed=3):
        tokens = question.prompt.split()
        value = tokens[tokens.index(f"({question.answer})") - 1]
        expected = words.COLOR_OF[tokens[3]] if question.kind == "lookup" else str(int(tokens[2]) + int(tokens[4]))
        assert value == expected


def test_thinking_names_a_first_letter_that_says_nothing() -> None:
    drawn = words.questions(400, seed=4)
    assert all("maybe (A) ?" in words.worked_answer(question, thinking=True) for question in drawn)
    assert 0.15 < sum(question.answer == "A" for question in drawn) / len(drawn) < 0.35


@pytest.mark.parametrize(("context_tokens", "output_tokens"), [(0, 256), (200, 256), (512, 256), (1500, 256), (0, 400)])
def test_listing_prompts_are_fresh_and_as_long_as_asked(context_tokens: int, output_tokens: int) -> None:
    prompts = [words.listing_prompt(seed, context_tokens, output_tokens) for seed in range(50)]
    assert len(set(prompts)) == 50
    assert prompts[0] == words.listing_prompt(0, context_tokens, output_tokens)
    shortest = words.CHAT_TOKENS + 2 + 2 * (output_tokens // 4 + words.SPARE_ITEMS)
    assert all(len(p.split()) + words.CHAT_TOKENS == max(context_tokens, shortest) for p in prompts)


def test_a_listing_answer_never_repeats_four_words() -> None:
    answer = words.draw_listing(random.Random(0), items=104, filler_words=0).answer.split()
    fours = list(zip(*(answer[shift:] for shift in range(4)), strict=False))
    assert len(answer) == 416
    assert len(set(fours)) == len(fours)


def test_more_than_there_is_is_an_error() -> None:
    with pytest.raises(ValueError, match="at most"):
        words.questions(words.MOST_QUESTIONS + 1, seed=0)
    with pytest.raises(ValueError, match="output_tokens"):
        words.listing_prompt(0, 0, words.LONGEST_OUTPUT_TOKENS + 1)


def test_what_starts_a_training_needs_the_standard_library_only() -> None:
    code = (
        "import sys; sys.modules.update(torch=None, transformers=None, tokenizers=None)\n"
        "import tasks.family.words, tasks.family.members, tasks.family.training.build, tasks.family.interpreter\n"
        "print(tasks.family.members.recipe_hash())"
    )
    command = [sys.executable, "-S", "-c", code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.strip()) == 16


def put(out: Path, name: str, **changes: object) -> None:
    (out / name).mkdir(parents=True)
    done = {"name": name, "recipe": recipe_hash(), "sha256": {}, **changes}
    (out / name / DONE_FILE).write_text(json.dumps(done))


def test_what_is_whole_and_of_this_recipe_is_not_missing(tmp_path: Path) -> None:
    assert sorted(MEMBERS) == sorted((*SHIPPED, *ON_REQUEST)), "each is shipped or trained on request"
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
    first, second = (line.split() for line in table(found).splitlines()[1:3])
    assert (first, second) == (["target", "loss", "0.0113", "0.0112"], ["target", "lookup", "1.0000", "1.0000"])
    assert verdict(found) == "losses equal within 0.9%, greedy scores within 0.021: as good as shipped"
    assert as_json(figures(here, ["diffusion"])) is None, "of what is not shipped nothing is said"


@pytest.mark.parametrize(
    ("loss", "score", "worse"),
    [(0.5, 1.0, ""), (1.05, 0.93, ""), (1.2, 1.0, "draft's loss"), (1.0, 0.9, "draft's arith")],
)
def test_what_is_worse_than_noise_is_named(loss: float, score: float, worse: str) -> None:
    said = verdict([Figure("draft", "loss", loss, 1.0), Figure("draft", "arith", score, 1.0)])
    assert said.endswith(f"not as good as shipped: {worse}" if worse else ": as good as shipped")
