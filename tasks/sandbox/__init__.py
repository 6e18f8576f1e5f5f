"""Programs that a model wrote are run here and nowhere else: fenced in by the kernel, and held to what they must print.

- extract: the program in an answer
- programs: of a step, each run once
- check: whether one is right
- run: one run of a program, and how it ended
- jail: what the child process does to itself before it runs the program
- landlock, seccomp: the kernel's two fences
"""
