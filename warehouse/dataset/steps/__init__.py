"""WHAT a step leaves behind: its raw tables, its dataset rows and its sections of the report; one file per step."""

from configs.more_steps import more_steps

__path__ += more_steps("warehouse")
