"""How figures are shown on the page, whatever they are of.

- markup, figures, scale, style of numbers: how things are written and drawn
- view: the rows that are shown; claims: what they carry
- section, tables, plots: what a section of the page is made of
"""
