"""From committed parts to rows, for all kinds of steps; `warehouse.dataset.build` puts the rows together.

- inputs: which steps are committed, which are compared with each other
- raw: parts read once, verified, reduced by polars
- rows: what every row carries; scores: what rows of scores carry; costs: seconds and dollars of a row
- speed: from visits to rates, intervals and pairs
- pairs, paired: comparisons with the AR cell, item by item, settled among all of their run
- serving: whether speed and accuracy come from equally started engines
- parity_bar: cells whose outputs aren't AR's though they promise it, and what that takes away
"""
