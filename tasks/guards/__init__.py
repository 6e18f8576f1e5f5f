"""Numbers that can't be true: pure functions from figures to findings, one file per kind of lie."""
