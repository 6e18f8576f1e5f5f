"""WHAT it means: consolidation, statistics, verdicts, claims, snapshots. Never on a node."""
