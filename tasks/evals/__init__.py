"""How an evaluation is measured on the node; `tasks/steps/eval.py` puts it together from these and `tasks.frameworks`.

- items, shapes, hub: which items, frozen in order and choices, from the hub, a file or the twin
- response log, exchange, watch: the recording proxy between any OpenAI client and the engine
- pairing, extractors, grading: from an answer to a letter, from letters to scores
- progress: how many answers at a time, and how far it is
- regrade: the same grades from the response log alone
"""
