"""From committed parts to the rows of a snapshot: one pass over the parts, a bounded batch at a time.

- inputs: which steps are committed, which are compared with each other
- frames: parts read once, verified, reduced by polars
- speed, parity, scores: result rows, by kind of measurement
- pairs: comparisons with the AR cell
- attempts: how the tries went, and what the machines under them cost
"""

from warehouse.consolidate.build import Consolidated, consolidate

__all__ = ["Consolidated", "consolidate"]
