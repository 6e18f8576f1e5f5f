"""What Prefect's server and form show of a run is what the ledger says: states, names, tags and artifacts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools import validate
from rich.text import Text

from configs.load import names
from flows.prefect_view import report_text, shown, step_state
from flows.sweep import sweep
from flows.terminal.prefect_session import PrefectSession
from flows.terminal.run import FINAL_STATES
from tests.fake_run import FakeRun
from tests.flows.test_prefect import PATIENCE_S, SELDOM_S, api, deployment, prefect, state_of
from tests.tasks.test_cell import wait_until
from tests.tasks.test_faults import THROUGHPUT, suite
from warehouse.ledger.verdicts import Verdict
from warehouse.report.answer import Answer


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectSession]:
    with PrefectSession(tmp_path_factory.mktemp("prefect")) as session:
        session.start(lambda _: None)
        yield session


def started(session: PrefectSession, run: FakeRun, **env: str) -> str:
    """A flow run of the run's sweep, whose YAML is named by its path, by a worker with this environment."""
    own = {"SPECSWEEP_STORE": run.store_url, "SPECSWEEP_STATE": str(run.state), "FAKE_ENGINE_COUNT": str(run.counts)}
    session.spawn_worker(own | env)
    parameters = {"name": str(run.folder / "sweep.yaml"), "run_id": "r1"}
    body = {"state": {"type": "SCHEDULED"}, "parameters": parameters}
    path = f"deployments/{deployment(session, 'sweep/demo')['id']}/create_flow_run"
    return str(api(session, "POST", path, body)["id"])


def ended(session: PrefectSession, flow_run: str) -> Any:
    """The flow run, once it is over."""
    is_over = lambda: state_of(session, flow_run)["type"] in FINAL_STATES  # noqa: E731
    wait_until(is_over, "the flow run's end", PATIENCE_S, SELDOM_S)
    return api(session, "GET", f"flow_runs/{flow_run}")


def task_states(session: PrefectSession, flow_run: str, *awaited: str) -> dict[str, Any]:
    """The states of its task runs by name, once these have ended there: the server hears of them later."""

    def states() -> dict[str, Any]:
        found = api(session, "POST", "task_runs/filter", {"flow_runs": {"id": {"any_": [flow_run]}}})
        return {each["name"]: each["state"] or {} for each in found}

    are_over = lambda: all(states().get(name, {}).get("type") in FINAL_STATES for name in awaited)  # noqa: E731
    wait_until(are_over, f"the end of {awaited}", PATIENCE_S, SELDOM_S)
    return states()


@pytest.mark.slow(81)
def test_a_failed_cell_a_suspect_step_and_the_results_are_shown_as_they_are(
    session: PrefectSession, tmp_path: Path
) -> None:
    run = FakeRun(tmp_path, "ar ngram", suite=suite(THROUGHPUT))
    flow_run = started(session, run, FAKE_ENGINE="preempts", FAKE_ENGINE_BROKEN="--speculative-config")
    over = ended(session, flow_run)
    assert over["state"]["type"] == "FAILED"
    assert over["name"].startswith("sweep 20") and {"specsweep", "fake", "r1"} <= {*over["tags"]}
    ar, ngram = (planned.cell.label for planned in run.cells)
    states = task_states(session, flow_run, ar, f"{ar} / throughput", ngram)
    step, commit = states[f"{ar} / throughput"], run.commit("throughput")
    assert commit.verdict != "ok" and (step["type"], step["name"]) == ("COMPLETED", commit.verdict.title())
    assert "engine_preemption" in step["message"]
    assert (states[ar]["type"], states[ngram]["type"]) == ("COMPLETED", "FAILED")
    assert "refuses these arguments" in states[ngram]["message"]

    asked = {"artifacts": {"flow_run_id": {"any_": [flow_run]}}}
    made = {each["key"]: each for each in api(session, "POST", "artifacts/filter", asked)}
    assert made["progress"]["data"] == 100
    assert {row["model"] for row in json.loads(made["results"]["data"])} == {"fake-model"}
    report = made["report"]
    assert report["type"] == "markdown" and run.ledger.store.uri("report.html") in report["data"]
    assert "file://" not in report["data"]


@pytest.mark.slow(61)
def test_what_a_cancelled_run_has_committed_stays_completed(session: PrefectSession, tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    flow_run = started(session, run, FAKE_ENGINE_TOKEN_S="0.05")
    wait_until(lambda: run.ledger.read_commit(run.key, "smoke") is not None, "the smoke step", PATIENCE_S)
    prefect(session, "flow-run", "cancel", flow_run)
    assert ended(session, flow_run)["state"]["type"] == "CANCELLED"
    cell = run.planned.cell.label
    steps = [f"{cell} / {step}" for step in run.ledger.committed_steps()[run.key]]
    states = task_states(session, flow_run, cell, *steps)
    assert (states[cell]["type"], states[cell]["name"]) == ("CANCELLED", "Cancelled")
    for step in steps:
        assert states[step]["type"] == "COMPLETED" and states[step]["name"] != "RolledBack"


@pytest.mark.parametrize(("verdict", "name"), [("ok", "Completed"), ("suspect", "Suspect"), ("rejected", "Rejected")])
def test_a_committed_step_is_completed_under_the_name_of_its_verdict(run: FakeRun, verdict: Verdict, name: str) -> None:
    reasons = [] if verdict == "ok" else ["unsteady"]
    state = step_state(run.ledger.new_commit("smoke", 2, "node", verdict, reasons, 1.0, []))
    assert state.is_completed() and state.name == name
    assert state.message is not None and all(reason in state.message for reason in reasons)


def test_what_prefect_could_not_be_told_is_one_line() -> None:
    def fails() -> None:
        raise OSError("Client error\nFor more information")

    told: list[str] = []
    shown("the tags are", fails, told.append)
    assert told == ["the tags are not told: OSError: Client error For more information"]


@pytest.mark.parametrize(("name", "is_taken"), [("full", True), ("/home/me/my sweep.yaml", True), (7, False)])
def test_the_form_offers_the_shipped_sweeps_and_takes_any_path(name: object, is_taken: bool) -> None:
    schema = parameter_schema(sweep).model_dump()
    choice, path = schema["properties"]["name"]["anyOf"]
    assert choice["enum"] == [*names("sweeps")] and "enum" not in path
    assert (validate({"name": name}, schema) == []) == is_taken
    if is_taken:
        assert sweep.validate_parameters({"name": name})["name"] == name


ODD = "a|b *c* _d_ <i>e</i> [f](g) ~~h~~ `i` \\j # k &lt;"


def test_a_report_s_text_is_read_by_markdown_as_it_is_meant() -> None:
    found = [Answer(ODD, "Run mtp.", "It is *fast*."), Answer("", "Stay with AR.", "Nothing\nis faster.")]
    table = Text(f"  cell   tok/s\n\n~~~ 1.50\n```\n{ODD}")
    text = report_text(found, table, "/store/report.html")
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    read = [token.children or [] for token in tokens if token.type == "inline"]
    said = ["".join(part.content for part in parts) for parts in read]
    assert said[:-1] == [f"{ODD}: Run mtp.", "It is *fast*.", "Stay with AR.", "Nothing is faster."]
    assert "/store/report.html" in said[-1]
    assert {part.type for parts in read[:-1] for part in parts} == {"text"}
    (drawn,) = [token.content for token in tokens if token.type == "code_block"]
    assert drawn.rstrip() == table.plain
