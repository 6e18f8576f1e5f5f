"""From committed parts to rows, for all kinds of steps; `warehouse.build` puts the rows together.

- inputs: which steps are committed, which are compared with each other
- raw: parts read once, verified, reduced by polars when a step asks for it
- rows: what every row carries; speed, scores: what rows of speeds and of scores carry
- pairs: comparisons with the AR cell
- attempts: how the tries went, and what the machines under them cost
"""
