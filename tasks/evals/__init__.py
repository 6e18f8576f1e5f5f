"""How an evaluation is measured on the node: a framework asks, the tape records, one grader scores.

- items: which items, frozen in order and choices, from the hub, a file or the twin
- tape: the recording proxy between any OpenAI client and the engine
- frameworks/: lm-eval, inspect_ai and HRET, each a process in an environment of its own
- extractors, grading: from an answer to a letter, from letters to scores
- run: one evaluation step, put together from these
"""
