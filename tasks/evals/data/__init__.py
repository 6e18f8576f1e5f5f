"""Which items an evaluation asks, with everything random settled: the same in every cell, framework and attempt.

- items: the door: a step's items, and exactly what they were taken from
- hub, files, twins: the three places they come from
- shapes: from each dataset's own columns to an item
"""
