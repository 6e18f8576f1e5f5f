"""Intervals and comparisons, in plain Python; each formula names its source."""
