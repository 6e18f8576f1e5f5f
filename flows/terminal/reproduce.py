"""The exact engine command and client call behind a recorded row."""

from __future__ import annotations

import json
import shlex
from typing import Any

import polars as pl

from configs.schema import PlannedCell
from configs.steps.throughput import Condition, ThroughputStep
from tasks.client import path_of, request_body
from tasks.prompts import PROSE, PROSE_KEPT_AS, Prompt, prompt_again, prompt_seed, prose_from_json
from tasks.timing.conditions import MOST_TRIES, window_of_try
from warehouse.dataset.snapshot import read_current
from warehouse.ledger.commits import Ledger, rows_in_force
from warehouse.ledger.store import Store, StoreError
from warehouse.ledger.timed_tables import REQUESTS


def reproduce(store: Store, cell: str, run_id: str | None) -> dict[str, Any]:
    """How a cell (a key's beginning) was served, and its first timed request, by its newest row; or StoreError."""
    rows = read_current(store).filter(pl.col("cell_key").str.starts_with(cell))
    if run_id is not None:
        rows = rows.filter(pl.col("run_id") == run_id)
    keys = rows["cell_key"].unique().sort().to_list()
    if len(keys) != 1:
        known = ", ".join(keys[:5]) or ", ".join(read_current(store)["cell_key"].unique().sort().to_list()[:12])
        what = f"{len(keys)} recorded cells start with" if keys else "no recorded cell is"
        raise StoreError(f"{what} {cell!r}: use one of {known}")
    row = rows.sort("measured_at").row(-1, named=True)
    ledger = Ledger(store, row["run_id"])
    planned = ledger.planned_cell(keys[0])
    return {
        "cell_key": keys[0],
        "label": planned.cell.label,
        "run_id": row["run_id"],
        "engine_command": row["argv"],
        "engine_environment": {**planned.cell.engine.env, **planned.cell.technique.engine_env},
        "engine_version": row["engine_version"],
        "client_call": _client_call(ledger, planned, row["argv"]),
    }


def _client_call(ledger: Ledger, planned: PlannedCell, argv: str | None) -> str | None:
    """The first timed request of the first throughput condition, as curl; None: no such step, or prompts made anew."""
    step = next((spec for spec in planned.steps if isinstance(spec, ThroughputStep)), None)
    if step is None or argv is None:
        return None
    condition = step.conditions[0]
    prompt = _first_prompt(ledger, planned.cell.cell_key, step, condition)
    if prompt is None:
        return None
    body = request_body(
        planned.cell.model, planned.cell.technique, prompt, condition.output_tokens, fixed=True, token_ids=True
    )
    words = shlex.split(argv)
    port = words[words.index("--port") + 1] if "--port" in words else "8000"
    url = f"http://127.0.0.1:{port}{path_of(body)}"
    return shlex.join(["curl", "-s", url, "-H", "content-type: application/json", "-d", json.dumps(body)])


def _first_prompt(ledger: Ledger, cell_key: str, step: ThroughputStep, condition: Condition) -> Prompt | None:
    """The prompt as it was sent: prose was cut by the engine, and its row says where."""
    name: tuple[str, str, int] = (condition.name, "fixed-0", 0)
    prose, characters = ledger.prompts(PROSE_KEPT_AS), 0
    if step.prompts == PROSE:
        commit = ledger.read_commit(cell_key, step.step)
        rows = [] if commit is None or prose is None else rows_in_force(ledger, commit, REQUESTS)
        sent = {row["request_id"]: row.get("prompt_chars") or 0 for row in rows}
        # a window whose client was starved was measured again, with prompts of their own
        tries = [(condition.name, window_of_try("fixed-0", number), 0) for number in range(1, MOST_TRIES + 1)]
        name = next((each for each in tries if "/".join(map(str, each)) in sent), name)
        characters = sent.get("/".join(map(str, name)), 0)
        if not characters:
            return None
    supply = () if prose is None else prose_from_json(prose)
    return prompt_again(
        step.prompts, prompt_seed(*name), condition.context_tokens, condition.output_tokens, supply, characters
    )
