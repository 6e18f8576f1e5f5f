"""Items that can't be had: said in one line by the node, before an engine is started."""

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from configs.evals.suites import GPQA
from tasks.evals.shapes import twin
from tasks.host.environment_spec import cache_folder
from tests.fake_hub import FakeHub, fake_hub
from tests.fake_run import FakeRun, ended
from tests.tasks.evals.graded import jsonl
from tests.tasks.test_cell import processes_with

SUITE = """
name: fake-suite
steps:
  - {{step: smoke, items: 5}}
  - {{step: {step}, dataset: {dataset}, items: 5, max_tokens: 32}}
"""


class Trouble(NamedTuple):
    """A dataset, what the line says, and what happens to its file after the run was planned."""

    step: str
    dataset: str
    said: str
    happens: Callable[[Path], object] = lambda file: None


def lose_gold(file: Path) -> None:
    records = twin(GPQA)
    del records[2]["Correct Answer"]
    jsonl(file, records)


TROUBLES = {
    "file": Trouble("eval-gpqa", "file", "can't be read: No such file or directory", Path.unlink),
    "gold": Trouble(
        "eval-gpqa", "file", "row 3 is not of GPQA-Diamond's shape: column 'Correct Answer' is missing", lose_gold
    ),
    "shape": Trouble("eval-kmmlu", "file", "row 1 is not of KMMLU's shape: column 'question' is missing"),
    "text": Trouble("eval-gpqa", "file", "is no jsonl file: line 1: ", lambda file: file.write_text("{not json")),
    "gated": Trouble("eval-gpqa", "hub", "GPQA-Diamond is gated and there is no HF_TOKEN: accept its terms"),
    "offline": Trouble("eval-mmlu-pro", "hub", "can't reach the hub for TIGER-Lab/MMLU-Pro: ConnectError"),
}

Refused = tuple[FakeRun, int, list[str]]
"""A runner that could not have its items: its exit code, and the lines that it said."""


@pytest.fixture(scope="module")
def hub() -> Iterator[FakeHub]:
    with fake_hub() as hub:
        hub.refusal = (401, "GatedRepo")
        yield hub


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory, node_python: Path, hub: FakeHub) -> dict[str, Refused]:
    runs, started = {}, {}
    for name, trouble in TROUBLES.items():
        folder = tmp_path_factory.mktemp(name)
        file = jsonl(folder / "items.jsonl", twin(GPQA))
        dataset = str(file) if trouble.dataset == "file" else trouble.dataset
        runs[name] = FakeRun(folder, suite=SUITE.format(step=trouble.step, dataset=dataset))
        trouble.happens(file)
        endpoint = "http://127.0.0.1:9" if name == "offline" else hub.endpoint
        started[name] = runs[name].start(node_python, **nothing_fetched(folder, endpoint))
    last = {name: ended(process) for name, process in started.items()}
    return {name: (runs[name], code, said.splitlines()) for name, (code, said) in last.items()}


@pytest.mark.parametrize("name", TROUBLES)
def test_items_that_cant_be_had_are_one_line_before_an_engine_starts(name: str, refused: dict[str, Refused]) -> None:
    run, code, lines = refused[name]
    assert code == 1, lines
    assert lines[0] == "[preparing]"
    assert TROUBLES[name].said in lines[-1]
    assert all(line.startswith(("[preparing]", "fetching ")) for line in lines[:-1]), "one line, and no traceback"
    (attempt,) = run.attempts()
    assert (attempt.outcome, attempt.exit_code, attempt.reason) == ("failed", 1, lines[-1])
    assert run.prompts_sent() == [] and not list(run.state.rglob("engine.log")), "no engine was started"
    assert run.ledger.committed_steps() == {}


def test_a_runner_that_is_asked_to_stop_does_not_wait_for_a_silent_hub(tmp_path: Path, node_python: Path) -> None:
    run = FakeRun(tmp_path, suite=SUITE.format(step="eval-mmlu-pro", dataset="hub"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        runner = run.start(node_python, **nothing_fetched(tmp_path, endpoint))
        silent.settimeout(60)
        connection, _ = silent.accept()
        runner.send_signal(signal.SIGTERM)
        runner.communicate(timeout=20)  # the hub's client has more patience
        connection.close()
    assert runner.returncode == 143
    assert [attempt.outcome for attempt in run.attempts()] == ["stopped"]
    assert processes_with(str(tmp_path)) == []


def nothing_fetched(folder: Path, endpoint: str) -> dict[str, str]:
    """Environment of a node with this user's frameworks, no token, and nothing fetched before."""
    cache = folder / "cache" / "specsweep"
    cache.mkdir(parents=True)
    (cache / "envs").symlink_to(cache_folder())
    hub = {"HF_HOME": str(folder / "hf"), "HF_ENDPOINT": endpoint, "HF_TOKEN": "", "HF_HUB_OFFLINE": "0"}
    return {"XDG_CACHE_HOME": str(cache.parent), **hub}
