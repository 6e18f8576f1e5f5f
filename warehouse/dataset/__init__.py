"""WHAT it means: consolidation, statistics, verdicts, claims, snapshots. Never on a node.

- build: all rows of the dataset, in one pass
- consolidate: what all kinds of steps share
- steps: the rows of each kind of step
- tables: the product tables
- snapshot: one immutable build of the tables, and its files
"""
