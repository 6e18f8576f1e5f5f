"""How figures are shown on the page, whatever they measure.

- markup, figures, drawing: how things are written and drawn
- view: the rows that are shown
- claims: what these rows support
- tables, plots (bars, dots), curves (two axes): what a section of the page is made of
"""
