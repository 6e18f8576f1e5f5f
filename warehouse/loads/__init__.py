"""Prompt suites under load, as rows and sections of the report.

- requests: what was sent on which machine, and each request's part in the steady state
- windows: the rate of each repeat, from slots
- acceptance: whose drafts were accepted
- latencies: rows of `load`
- rows: all of it together, as a step's file returns it
- arrivals: whether an engine followed a schedule
- plots, columns, section, rate_section: the page
"""
