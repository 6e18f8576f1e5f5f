"""Intervals and comparisons, in plain Python; each formula stands beside its source."""
