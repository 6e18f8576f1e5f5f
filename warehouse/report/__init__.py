"""HOW it looks: one offline page made from one snapshot's tables.

- page: the page itself, and its place in a store
- style: the page's style sheet
- answer: what the data say, first on the page
- no_claim: why they say nothing about speed, and how far they reach
- placebo_section: AR against AR, and how much starts and repeats differ
- accuracy_section, which_k, cost_section, trust_sections, beside: other sections
- steps: the sections of one step
- published: earlier publications, and which of their figures are shown next to ours
- display: how figures, tables and plots are drawn, whatever they are of
"""
