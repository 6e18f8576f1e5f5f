"""WHAT happened: the store, commits, leases, raw tables as data, reason codes, endings. All that a node imports.

- store: bytes under keys
- parts: rows as Parquet
- commits: a run's plan and its committed steps
- regrades: new grades
- lease, placement, claims: who holds a cell, a machine, a cell's clusters, and how each of them ended
- outcomes: how a try can end, and what follows
- verdicts: reason codes
- tables: how a table is declared, and what any step writes
- steps: what one step writes
- formulas: what is computed from it
"""
