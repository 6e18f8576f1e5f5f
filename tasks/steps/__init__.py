"""HOW a step is measured and judged: one file per step, named as in `configs/steps/`."""

from configs.step import more_steps

__path__ += more_steps("tasks")
