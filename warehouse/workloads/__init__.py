"""Named workloads, as rows and a section of the report.

- rows: rates and speedups by the speed machinery; seconds of an answer and right programs beside them
- section: the page
"""
