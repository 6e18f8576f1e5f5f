"""HOW it looks: one offline page made from one snapshot's tables.

- page: the page itself, and its place in a store; style
- answer: what the data say, first on the page; no_claim: why they say nothing about speed, and how far they reach
- placebo_section: AR against AR, and what starts and repeats differ by
- accuracy_section, which_k, cost_section, trust_sections, beside: other sections; steps: those of one step
- published: what others published before, and what of it stands beside ours
- display: how figures, tables and plots are drawn, whatever they are of
"""
