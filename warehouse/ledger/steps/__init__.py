"""Raw tables that only one kind of step writes, as data: one file per step."""

from configs.step import more_steps

__path__ += more_steps("warehouse/ledger")
