"""Evaluations: from graded answers to counts (readings), and to rows of the dataset and comparisons (rows)."""
