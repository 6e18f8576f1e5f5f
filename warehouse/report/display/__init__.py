"""How figures are shown on the page, whatever they measure.

- markup, figures, drawing: how things are written and drawn
- view: the rows that are shown; claims: what they support
- section, tables, plots, curves: what a section of the page is made of
- speed_sections, rate_columns, load_columns, load_plots: what sections about speed share
"""
