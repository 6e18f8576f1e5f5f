"""What the pages say is there: links, files, modules and commands that they name exist; an example is run."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from textwrap import dedent
from typing import Any

import duckdb
import polars as pl
import pytest
import yaml

from configs.checkout import ROOT
from flows.plans import make_plan
from warehouse.ledger.verdicts import Reason

PAGES = [
    str(path.relative_to(ROOT)) for pattern in ("*.md", "bench/**/*.md", "docs/*.md") for path in ROOT.glob(pattern)
]
OTHERS = ["Makefile", "prefect.yaml", ".pre-commit-config.yaml", ".github/workflows/test.yml"]
OTHERS += [f"sky/{path.name}" for path in (ROOT / "sky").iterdir()]
HISTORY = ("CHANGELOG.md", "docs/log.md")  # pages that may name what is gone
ROOMS = "bench|configs|flows|lab|tasks|tests|warehouse"
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FILE = re.compile(rf"(?<![\w/.-])(?:{ROOMS}|bin|docs|requirements|sky)/[\w./-]*")
"""A path of the repository, up to a placeholder: of `configs/steps/<step>.py` the folder must be there."""

MODULE = re.compile(rf"(?<![\w/.-])(?:{ROOMS})\.\w+(?:\.\w+)*")
STARTED = re.compile(rf"(\S*) ?python (?:-P )?-m (?:{ROOMS})\.\w+")
"""A module of ours that a page tells one to start, and the word before."""

BACKTICKS = re.compile(r"`([^`\n]+)`")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Headings as GitHub turns them into anchors."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def is_there(module: str) -> bool:
    parts = module.split(".")
    paths = [ROOT.joinpath(*parts[:length]) for length in range(2, len(parts) + 1)]
    return any(path.is_dir() or path.with_suffix(".py").is_file() for path in paths)


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_lead_somewhere(page: str) -> None:
    for link in LINK.findall(text_of(page)):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [page for page in (*PAGES, *OTHERS) if page not in HISTORY])
def test_files_and_modules_that_are_named_exist(page: str) -> None:
    text = text_of(page)
    files = {found.rstrip(".-") for found in FILE.findall(text)}
    assert not sorted(file for file in files if not (ROOT / file).exists())
    assert not sorted(module for module in set(MODULE.findall(text)) if not is_there(module))


@pytest.mark.parametrize("page", [page for page in PAGES if page not in HISTORY])
def test_a_module_is_started_with_the_environment_that_it_needs(page: str) -> None:
    assert {word.strip("`") for word in STARTED.findall(text_of(page))} <= {"bin/run"}


def rows_of(text: str) -> list[list[str]]:
    """Rows of all tables, cell by cell."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_no_question_of_the_architecture_sends_its_reader_to_more_than_two_files() -> None:
    section = text_of("docs/architecture.md").partition("\n## Where is it?\n")[2]
    for question, answer in ((row[0], row[-1]) for row in rows_of(section) if row[0].endswith("?")):
        files = [name for name in BACKTICKS.findall(answer) if name.endswith(".py")]
        assert len(files) <= 2, question
        assert all((ROOT / file).is_file() for file in files), (question, files)


def test_each_planted_fault_is_noticed_by_a_code_that_there_is_in_a_test_that_there_is() -> None:
    planted = [row for row in rows_of(text_of("docs/guards.md")) if row[-1].startswith("`")]
    codes = {code for row in planted if len(row) == 4 for cell in row[1:3] for code in BACKTICKS.findall(cell)}
    assert codes and codes <= {reason.value for reason in Reason}
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = {name for row in planted for name in BACKTICKS.findall(row[-1])}
    assert not sorted(name for name in named if f"def {name}(" not in tests)


def test_the_sweep_of_the_readme_can_be_planned(tmp_path: Path) -> None:
    [sweep] = re.findall(r"^```yaml\n(.+?)^```", text_of("README.md"), re.MULTILINE | re.DOTALL)
    (tmp_path / "sweep.yaml").write_text(sweep, encoding="utf-8")
    assert make_plan(str(tmp_path / "sweep.yaml")).cells


def test_what_is_cited_is_this_version() -> None:
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    cited = yaml.safe_load(text_of("CITATION.cff"))
    assert cited["title"] == project["name"]
    assert all(cited[name] == project[name] for name in ("version", "license"))


PUBLISHED = ROOT / "bench" / "h200" / "snapshot"  # most of its claims are of dummy weights
BLOCK = re.compile(r"^```\w*\n((?:.*\n)+?)```|((?: {4}.+\n|\n(?= {4}))+)", re.MULTILINE)
EXAMPLES = [
    (page, example)
    for page in PAGES
    if page not in HISTORY
    for block in BLOCK.finditer(text_of(page))
    for example in re.split(r"\n\n(?=select )", dedent(block[1] or block[2]).strip())
    if re.search(r"\.parquet['\"]", example)
]
"""What the pages show for reading the dataset, in Python and in SQL."""


ATTEMPTS = "attempts.parquet"  # its examples add up what was paid, for what is made up as well


def shown_by(example: str) -> list[dict[str, Any]]:
    """Rows that an example selects, or prints, or has in its last line."""
    if example.startswith("select"):
        found = duckdb.execute(example)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    *lines, last = ast.parse(example).body
    assert isinstance(last, ast.Expr)
    printed: list[pl.DataFrame] = []
    known = {"print": printed.append, "polars": pl, "duckdb": duckdb}
    exec(compile(ast.Module(lines, []), "example", "exec"), known)
    table: pl.DataFrame | None = eval(compile(ast.Expression(last.value), "example", "eval"), known)
    return (printed[-1] if table is None else table).to_dicts()


def is_made_up(row: dict[str, Any]) -> bool:
    return row["weights"] == "dummy" or (row["acceptance_source"] or "").startswith("replayed:")


def test_readme_and_page_of_the_dataset_show_how_to_list_claims() -> None:
    assert {page for page, example in EXAMPLES if "conclusion" in example} == {"README.md", "docs/dataset.md"}


@pytest.mark.parametrize(("page", "example"), EXAMPLES)
def test_an_example_runs_and_lists_all_claims_that_were_really_run_and_no_other(
    page: str, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results").symlink_to(PUBLISHED)
    monkeypatch.chdir(tmp_path)
    shown = shown_by(example)
    rows = pl.read_parquet(PUBLISHED / "results_consolidated.parquet").to_dicts()
    claims = [row for row in rows if row["conclusion"] in ("faster", "slower")]
    assert any(map(is_made_up, claims)), "there is something to leave out"
    names = ("model", "technique", "k", "condition", "tok_s", "speedup")
    really_run = [[row[name] for name in names] for row in claims if not is_made_up(row)]
    assert ATTEMPTS in example or [[row[name] for name in names] for row in shown] == really_run
