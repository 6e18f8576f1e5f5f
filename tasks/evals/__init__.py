"""How an evaluation is measured on the node: a framework asks, the tape records, one grader scores.

- data/: which items, frozen in order and choices, from the hub, a file or the twin
- tape, recording/, policy: the recording proxy between any OpenAI client and the engine
- pairing, extractors, grading, metrics: from an answer to a letter, from letters to scores
- asking, run: one evaluation step, put together from these and `tasks.frameworks`
- regrade: the same grades from the tape alone
"""
