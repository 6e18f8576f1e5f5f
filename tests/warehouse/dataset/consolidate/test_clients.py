"""Windows of two clients, before and after the instrument changed, are never held against each other."""

from __future__ import annotations

import pytest

from tests.warehouse.visited import VisitedRun, only
from warehouse.ledger.store import Store


@pytest.mark.parametrize("older", [None, 1])
def test_a_pair_of_two_clients_has_no_speedup_and_says_why(local: Store, older: int | None) -> None:
    run = VisitedRun(local, "single")
    run.visit("ar", None, 100.0, provenance={"client_version": older})
    run.visit("mtp", 2, 150.0, provenance={"client_version": 2})
    built = run.built()
    row = only(built.results, technique="mtp", k=2)
    assert row.get("speedup") is None and not built.pairs
    [said] = [detail for detail in row["details"] if detail.startswith("client_differs: ")]
    assert "version 2" in said and ("without a version" in said) is (older is None)
    assert (row["tok_s"], row["client_version"]) == (pytest.approx(150, rel=0.01), 2)


def test_a_figure_of_two_clients_is_suspect(local: Store) -> None:
    run = VisitedRun(local, "mirrored")
    for visit, version in (("", 2), ("@2", 3)):
        run.visit("mtp", 2, 150.0, visit, provenance={"client_version": version})
    row = only(run.built().results, technique="mtp", k=2)
    assert (row["verdict"], row["reasons"]) == ("suspect", ["client_differs"])


@pytest.mark.parametrize("version", [None, 2])
def test_one_client_for_both_is_a_comparison_as_ever(local: Store, version: int | None) -> None:
    run = VisitedRun(local, "single")
    run.visit("ar", None, 100.0, provenance={"client_version": version})
    run.visit("mtp", 2, 150.0, provenance={"client_version": version})
    assert only(run.built().results, technique="mtp", k=2)["speedup"] == pytest.approx(1.5)
