"""Dollars of rented time: the one formula, and how an amount is written."""

from __future__ import annotations

from typing import overload

from warehouse.ledger.clock import HOUR_S


@overload
def usd_of(price_usd_h: float, seconds: float) -> float: ...
@overload
def usd_of(price_usd_h: float | None, seconds: float) -> float | None: ...
def usd_of(price_usd_h: float | None, seconds: float) -> float | None:
    """Dollars for this many seconds; None without a price."""
    return None if price_usd_h is None else price_usd_h * seconds / HOUR_S


def dollars(usd: float | None) -> str:
    """An amount, or `?` where no price is known."""
    return "?" if usd is None else f"${usd:.2f}"
