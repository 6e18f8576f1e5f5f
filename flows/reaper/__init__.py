"""The reaper: finds what is rented under our name and owned by nobody, takes it down, and says what that saves."""

from flows.reaper.report import ReapReport
from flows.reaper.work import Sky, reap_store

__all__ = ["ReapReport", "Sky", "reap_store"]
