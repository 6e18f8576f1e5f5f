"""What a cell's cluster is called, also where an earlier version has rented it."""

from pathlib import Path

from flows.clusters.protocol import cluster_name, cluster_of, name_by_address
from tests.fake_cloud import OFFER
from tests.fake_run import FakeRun
from warehouse.ledger.clock import SYSTEM
from warehouse.ledger.outcomes import Ended
from warehouse.ledger.placement import PlacementEnd
from warehouse.ledger.store.identity import store_id


def test_a_flow_finds_what_was_rented_before_stores_had_an_id_while_that_is_recorded_as_up(tmp_path: Path) -> None:
    run = FakeRun(tmp_path)
    own = store_id(run.ledger.store)
    name = cluster_name(own, "r1", run.key)
    earlier = name_by_address(run.ledger.store.url, "r1", run.key)
    of_a_copy = name_by_address("s3://where-this-was-copied-from", "r1", run.key)
    for recorded, found in ((earlier, earlier), (of_a_copy, name), (name, name)):
        assert cluster_of(run.ledger, own, run.key) == name
        placement = run.placements.ask(recorded, OFFER, "a flow", SYSTEM.now_iso())
        assert cluster_of(run.ledger, own, run.key) == found
        run.placements.end(placement.number, PlacementEnd(at=SYSTEM.now_iso(), outcome=Ended.REAPED.row.recorded))
