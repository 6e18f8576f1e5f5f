"""What the evaluation steps share: the suites' facts, and the fields that every one of them has.

- suites: which dataset a suite is, at which revision, how large, and what guessing scores
- spec: the base class of every `configs/steps/eval_<name>.py`
"""
