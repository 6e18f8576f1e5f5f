"""The reaper: finds what is rented under our name and owned by nobody, takes it down, and says what that saves."""

from flows.reaper.reap import Sky, reap_store
from flows.reaper.report import ReapReport

__all__ = ["ReapReport", "Sky", "reap_store"]
