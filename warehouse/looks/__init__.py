"""Looking at the cells of a run again and again: one listing for all who ask, and how often they ask."""

from warehouse.looks.rhythm import LONGEST_S, pause_s
from warehouse.looks.shared import SharedLook

__all__ = ["LONGEST_S", "SharedLook", "pause_s"]
