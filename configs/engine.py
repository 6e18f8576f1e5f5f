"""What serves a model, and the serving arguments that differ from cell to cell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar, Literal

from pydantic import Field

from configs.frozen import Frozen, Grown

CPU_ENVIRONMENT = "engine-cpu"
"""The environment of ours whose vLLM computes on the processor."""


class Engine(Grown):
    """What serves the model: `command` starts a user's own build, in a container maybe, or `environment` has it.

    `environment` names a pinned environment of ours, or with a / the path of a user's own virtual environment. With
    neither, `vllm` of the PATH serves: that of the image on rented machines. Of kind transformers, all three name a
    Python that has torch and transformers, `python3` if none does; what serves is ours.
    """

    name: str
    kind: Literal["vllm", "transformers"] = "vllm"
    environment: str | None = None
    command: tuple[str, ...] | None = None
    image: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    start_timeout_s: float = Field(600, gt=0)
    draft_args: tuple[str, ...] = Field(
        (), description="behind `args`, of cells that draft; vLLM refuses some elsewhere"
    )

    later: ClassVar[frozenset[str]] = frozenset({"draft_args"})

    @property
    def on_cpu(self) -> bool:
        """Whether it is our engine that uses no card, even where there is one."""
        return self.command is None and self.environment == CPU_ENVIRONMENT


def argument(words: Sequence[str], *names: str) -> str | None:
    """The last value given to a flag under any of its names, `--flag value` or `--flag=value`; None: not given.

    vLLM takes `_` for `-` inside a flag.
    """
    given = None
    for word, following in zip_longest(words, words[1:]):
        flag, equals, value = word.partition("=")
        if word.startswith("-") and flag.replace("_", "-") in names:
            given = value if equals else following or ""
    return given


class Serving(Frozen):
    """Serving arguments that differ from cell to cell."""

    max_model_len: int = Field(gt=0)
    max_num_seqs: int | None = Field(None, gt=0)
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    prefix_cache: bool = False

    def together(self, asked: int) -> int:
        """Requests that a step works on, of so many in flight: what the engine has no slot for waits."""
        return asked if self.max_num_seqs is None else min(asked, self.max_num_seqs)
