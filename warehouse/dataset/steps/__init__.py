"""WHAT a step's raw rows mean: its rows of the dataset; one file per step."""

from configs.step import more_steps

__path__ += more_steps("warehouse/dataset")
