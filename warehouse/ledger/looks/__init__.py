"""Looking at the cells of a run again and again: one listing for all who ask, and how often they ask."""

from warehouse.ledger.looks.rhythm import LONGEST_S, pause_s
from warehouse.ledger.looks.shared import SharedLook

__all__ = ["LONGEST_S", "SharedLook", "pause_s"]
