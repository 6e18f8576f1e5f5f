"""What an hour of the node costs: the launcher's word, also that there is no price, before the catalogue's."""

from __future__ import annotations

import pytest

from configs.expand import expand
from configs.load import load_sweep
from tasks.place.provenance import price_usd_h


@pytest.mark.parametrize(("paid", "price"), [("2.25", 2.25), ("", None)])
def test_what_was_paid_counts_and_a_machine_without_a_price_has_none(
    paid: str, price: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = expand(load_sweep("full")).cells[0]
    monkeypatch.delenv("SPECSWEEP_PRICE_USD_H", raising=False)
    assert price_usd_h(planned) == planned.gpu.price_spot_usd_h is not None
    monkeypatch.setenv("SPECSWEEP_PRICE_USD_H", paid)
    assert price_usd_h(planned) == price
