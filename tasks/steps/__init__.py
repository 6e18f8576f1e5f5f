"""HOW to measure: one file per step of a cell."""
