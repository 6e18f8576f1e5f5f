"""How figures are shown on the page, whatever they measure.

- markup, figures, scale: how things are written and drawn
- view: the rows that are shown; claims: what they support
- section, tables, plots: what a section of the page is made of
- speed_sections, rate_columns: the sections about speed, and the columns of their tables
"""
