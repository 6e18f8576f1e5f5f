"""Named prompts whose answers are timed, some of them programs that are run: YAML files here, and their reader.

- workload: the shape of one, and of what its program must print
- read: from a name or a path to the workloads of a file
"""
