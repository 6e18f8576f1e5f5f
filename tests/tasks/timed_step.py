"""One attempt at a timed step, by the real code, against the fake engine of known speed, in virtual time."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from configs.schema import PlannedCell
from configs.step import MeasuredStep
from configs.steps.smoke import SmokeStep
from configs.visits import Measurement
from tasks.client import Heard, Ready, RequestFailed, Unanswered
from tasks.context import Progress, StepContext, file_of, trial_of
from tasks.frameworks.process import Frameworks
from tests.tasks.fake_client import FakeClient
from tests.tasks.virtual_time import Clock, run
from warehouse.ledger.commits import Ledger
from warehouse.ledger.store import open_store
from warehouse.ledger.tables import decode
from warehouse.ledger.verdicts import Finding, Judgement

TOKEN_S = 0.05  # so slow that no real delay of this machine matters beside it
PREFILL_TOKEN_S = 0.002  # of a depth, whose figure it is

Prepare = Callable[[FakeClient], None]
Hear = Callable[[Ready], Awaitable[Heard]]


def nothing(client: FakeClient) -> None:
    """An engine as it is."""


def changed(**attributes: Any) -> Prepare:
    return lambda client: [setattr(client, name, value) for name, value in attributes.items()] and None


class Measured:
    """What one attempt brought: judgements, the rows of its commit, and what it told and asked meanwhile."""

    def __init__(self) -> None:
        self.said: list[Judgement] = []
        self.told: list[Progress] = []
        self.windows: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.asked: dict[str, int] = {}

    def judged(self, condition: str, mode: str | None = None) -> Judgement:
        (found,) = [each for each in self.said if each.condition == condition and mode in (None, each.mode)]
        return found

    def reasons(self, condition: str, mode: str | None = None) -> list[str]:
        return [finding.reason.value for finding in self.judged(condition, mode).findings]

    @property
    def found(self) -> dict[str | None, list[str]]:
        """Reasons by condition, of a step that has one judgement for each."""
        return {each.condition: [finding.reason.value for finding in each.findings] for each in self.said}

    @property
    def verdicts(self) -> set[str]:
        return {each.verdict for each in self.said}

    @property
    def all_reasons(self) -> set[str]:
        return {reason for reasons in self.found.values() for reason in reasons}


def attempt(
    folder: Path,
    planned: PlannedCell,
    spec: MeasuredStep,
    token_s: Sequence[float] = (TOKEN_S,) * 8,
    prepare: Prepare = nothing,
    number: int = 1,
    machine: str = "here",
) -> Measured:
    """Measure a step with slots of known speed; half of what drafts write is accepted. What fails leaves its rows."""
    done = Measured()

    async def whole(clock: Clock) -> Measured:
        ledger = Ledger(open_store(str(folder / "store")), "r1")
        async with FakeClient(planned, clock, token_s) as client, Frameworks(folder) as frameworks:
            client.accepted = (lambda _: 0.5) if planned.cell.technique.drafts else None
            client.prefill_token_s = PREFILL_TOKEN_S if spec.step == "depth" else None
            prepare(client)
            ctx = StepContext(
                planned=planned, served=planned.cell, client=client, ledger=ledger, measurement=Measurement(spec),
                attempt=number, tell=done.told.append, frameworks=frameworks,
            )  # fmt: skip
            await ctx.begin({"attempt": number, "machine": machine})
            done.said = await file_of(spec).measure(ctx, spec)
            done.asked = client.asked
            for part in await ctx.end():
                rows = decode(ledger.store.get(part.key) or b"", part.key)
                done.windows += rows if part.table.endswith("windows") else []
                done.requests += rows if part.table.endswith("requests") else []
        return done

    return run(whole)


def smoked(folder: Path, planned: PlannedCell, spec: MeasuredStep, items: int) -> tuple[list[Finding], dict[str, int]]:
    """Try a few items of a step: what the guards say, and what was asked."""
    trial = trial_of(spec)
    assert trial is not None

    async def whole(clock: Clock) -> tuple[list[Finding], dict[str, int]]:
        ledger = Ledger(open_store(str(folder / "store")), "r1")
        async with FakeClient(planned, clock, [0.01]) as client, Frameworks(folder) as frameworks:
            client.accepted = lambda _: 0.5
            smoke = Measurement(SmokeStep(step="smoke"))
            ctx = StepContext(
                planned=planned, served=planned.cell, client=client, ledger=ledger, measurement=smoke, attempt=1,
                tell=lambda progress: None, frameworks=frameworks,
            )  # fmt: skip
            return [each for each in await trial(ctx, spec, items) if each is not None], client.asked

    return run(whole)


def hearing(instead: Callable[[FakeClient, int, Ready, Hear], Awaitable[Heard]]) -> Prepare:
    """An engine behind `instead`, which is given the client, which request it is, from 1, and who would answer it."""

    def prepare(client: FakeClient) -> None:
        hear, asked = client.hear, iter(range(1, 100_000))

        async def heard(ready: Ready) -> Heard:
            return await instead(client, next(asked), ready, hear)

        client.hear = heard  # type: ignore[method-assign]

    return prepare


def failing(*at: int) -> Prepare:
    """An engine that lives, and answers HTTP 500 to these of its requests, from 1."""

    async def fails(_: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        if number in at:
            raise RequestFailed("HTTP 500: out of luck")
        return await hear(ready)

    return hearing(fails)


def dies_after(most: int) -> Prepare:
    """An engine that answers so many requests."""

    async def dies(_: FakeClient, number: int, ready: Ready, hear: Hear) -> Heard:
        if number > most:
            raise Unanswered("the engine is gone")
        return await hear(ready)

    return hearing(dies)
