"""Speeds: from the windows of visits to rates, intervals and pairs.

- visits: what one engine start measured on one machine, and its row of `visits`
- arms: which visits of a cell become its figure, and what it is held against
- rows: a cell's row of `results_consolidated`, all that one comparison group knows of it
- bandwidth: how much of the cards' memory bandwidth that is
- settled: the last word, when all visits of the run are known: intervals, speedups, pairs
- claims, placebo: pairs in words, and AR held against itself
"""
