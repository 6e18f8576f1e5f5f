"""What all evaluation steps write and what is made of it.

- tables: their raw tables
- readings, rows: from graded answers to counts, and to rows of the dataset and comparisons
- section, paired_table, readers_table: the page's section about accuracy
"""
