"""The report: one offline page made from one snapshot.

- answer: what the data say, first on the page; no_claim: why they say nothing about speed
- placebo_section, noise: AR against AR, and what starts and repeats differ by
- cost_section, trust_sections: what it says about all steps; steps, evals, speculation: the others
- published: what others published before, and the verdict that their data can carry
- newest: which rows are shown; page, style, write: the page itself
"""
