"""Books of machines that the reaper may not see: kept open and named, or closed by an estimate that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.clusters.clouds.account import CloudError, NotAsked, Sighting
from flows.clusters.protocol import cluster_name
from flows.reaper.found import ReapReport
from flows.reaper.reap import reap_store
from tests.fake_cloud import OFFER, offer
from tests.fake_run import FakeRun
from tests.flows.reaper.test_reap import FakeSky, Told
from tests.warehouse.ledger.test_ledger import elsewhere
from warehouse.ledger.claims import IDLE_S
from warehouse.ledger.clock import SYSTEM, iso_of, moment_s
from warehouse.ledger.placement import Offer, PlacementStory
from warehouse.ledger.store.identity import store_id

AWS = OFFER.model_copy(update={"region": "us-west-2", "zone": "us-west-2a"})
RUNPOD = offer().model_copy(update={"cloud": "runpod"})


def reaped(folder: Path, rented: Offer, aws: Told, ago_s: float = 7200) -> tuple[ReapReport, PlacementStory]:
    """The report of one reaper, and what became of a placement that was asked for so long ago."""
    run = FakeRun(folder)
    store = run.ledger.store
    name = cluster_name(store_id(store), "r1", run.key)
    run.placements.ask(name, rented, elsewhere("laptop"), iso_of(SYSTEM.now_s() - ago_s))
    report = reap_store(store, FakeSky(), [aws], SYSTEM.now_s(), dry_run=False, pause=lambda _: None)
    return report, run.story()


REFUSED = Sighting("aws", refused=("aws/us-west-2: UnauthorizedOperation",))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (REFUSED, "UnauthorizedOperation"),
        (NotAsked("no credentials"), "no credentials"),
        (CloudError("aws: no region may be looked into"), "no region may be looked into"),
        (RuntimeError("a library's own words"), "aws: a library's own words"),
    ],
)
def test_where_it_may_not_look_a_record_stays_open_and_is_a_problem(
    tmp_path: Path, answer: Sighting | Exception, why: str
) -> None:
    report, story = reaped(tmp_path, AWS, Told(answer))
    assert story.end is None and report.closed == () and not report.ok
    (said,) = [line for line in report.problems if story.asked.cluster in line]
    assert "aws/us-west-2a spot" in said and why in said


def test_a_refused_region_where_nothing_is_open_is_none(tmp_path: Path) -> None:
    elsewhere_open = AWS.model_copy(update={"region": "us-east-1", "zone": "us-east-1a"})
    report, story = reaped(tmp_path, elsewhere_open, Told(REFUSED))
    assert report.ok and story.end is not None and report.not_asked == REFUSED.refused


@pytest.mark.parametrize("rented", [AWS, RUNPOD], ids=["a cloud that lists", "a cloud that only SkyPilot can ask"])
def test_what_is_gone_is_closed_at_an_estimated_end(tmp_path: Path, rented: Offer) -> None:
    report, story = reaped(tmp_path, rented, Told(Sighting("aws")))
    assert report.ok and report.closed == (story.asked.cluster,)
    assert story.end is not None and story.end.estimated and story.end.outcome == "autodowned"
    assert moment_s(story.end.at) == pytest.approx(moment_s(story.asked.asked_at) + IDLE_S, abs=0.01)


def test_what_only_skypilot_can_be_asked_of_gets_its_time_to_remove_itself(tmp_path: Path) -> None:
    report, story = reaped(tmp_path, RUNPOD, Told(Sighting("aws")), ago_s=IDLE_S / 2)
    assert report.ok and story.end is None
