"""The report: one offline page made from one snapshot.

- answer: what the data say, first on the page
- cost_section, trust_sections: what it says about all steps; sections of one step are in `warehouse/steps/`
- published: what others published before, and the verdict that their data can carry
- page, style, write: the page itself
"""
