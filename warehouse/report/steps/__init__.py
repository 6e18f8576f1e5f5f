"""A step's sections of the page, `SECTIONS`: one file per step that has some."""

from configs.more_steps import more_steps

__path__ += more_steps("warehouse/report")
