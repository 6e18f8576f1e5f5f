"""The parts of the tape, each without the others.

- exchange: from a request and its answer to a row, and from the row to an answer
- answers: which answers are known, and whose turn it is
- parts: rows out to the store, in time
- watch: whether the engine is there and makes progress
"""
