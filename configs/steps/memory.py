"""Memory: what weights, cache and graphs of a cell take, and what one request of full length takes at the most."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from configs.cell import Cell
from configs.step import PromptedStep, Work

CONDITION = "full context"
"""What its row is called."""

LEAST_TOKENS = 64
"""No prompt is shorter: the chat template takes its part of it."""


class MemoryStep(PromptedStep):
    """What the start said of weights, KV cache and CUDA graphs; then one request that fills the context.

    It is done in every start of a speed, the control's too: a draft's KV tokens are compared with AR's on that card.
    """

    step: Literal["memory"]
    prompts: str = Field("prose", description="what the request is made of, as for throughput")
    output_tokens: int = Field(16, gt=0, le=1024, description="its answer; the rest of the context is its prompt")

    is_timed: ClassVar[bool] = True

    def context_tokens(self, cell: Cell) -> int:
        """Length of the prompt: what the answer leaves of the cell's context."""
        return cell.serving.max_model_len - self.output_tokens

    def why_not(self, cell: Cell) -> str | None:
        """A context that the answer fills has no room for a prompt."""
        if self.context_tokens(cell) >= LEAST_TOKENS:
            return None
        return f"max_model_len {cell.serving.max_model_len} has no room for a prompt and {self.output_tokens} tokens"

    def workload(self, cell: Cell) -> tuple[Work, ...]:
        """One request."""
        return (Work(1, self.context_tokens(cell), self.output_tokens),)
