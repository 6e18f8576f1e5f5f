"""WHAT happened: the store, commits, leases, raw tables as data, reason codes, endings. All that a node imports.

- store: bytes under keys
- commits: a run's plan, its committed steps, and their later grades
- lease, placement, claims: who holds a cell, a machine, a cell's clusters, and how each of them ended
- outcomes: how a try can end, and what follows
- verdicts: reason codes
- tables: how a table is declared, what any step writes, and rows as Parquet
- steps: what one step writes
- formulas: what is computed from it
"""
