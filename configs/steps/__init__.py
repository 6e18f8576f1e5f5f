"""WHAT a step measures: one file per step, with its spec and its workload."""

from configs.step import more_steps

__path__ += more_steps("configs")
