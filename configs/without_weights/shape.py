"""The shape of a checkpoint: its `config.json` as published, from which an engine can make weights of its own."""

from __future__ import annotations

from typing import Any

from pydantic import Field, JsonValue

from configs.frozen import Frozen


class Shape(Frozen):
    """A checkpoint without weights. Speed depends on it, on precision and on kernels, not on what the weights say.

    `config` is the checkpoint's `config.json`, `generation` its `generation_config.json`. The tokenizer is our own, of
    the config's vocabulary size: prompts are cut to their length by whatever tokenizer the engine has.
    """

    name: str
    config: dict[str, JsonValue]
    generation: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def has_parts(self) -> bool:
        """Whether the language model is one part of the config among others."""
        return isinstance(self.config.get("text_config"), dict)

    @property
    def text_config(self) -> dict[str, Any]:
        """The language model's part of the config; a config that has no parts is one."""
        part = self.config.get("text_config")
        return part if isinstance(part, dict) else self.config

    @property
    def vocab_size(self) -> int:
        """Entries of the vocabulary.

        Raises:
            KeyError: the config doesn't say; `problems` tells the user.
        """
        return int(self.text_config["vocab_size"])

    @property
    def canvas_length(self) -> int | None:
        """Tokens that a block-diffusion model denoises together; None for any other model."""
        tokens = self.config.get("canvas_length")
        return tokens if isinstance(tokens, int) else None

    def problem(self) -> str | None:
        """What keeps a folder from being made of it; None: nothing."""
        missing = [key for key in ("architectures", "model_type") if key not in self.config]
        if missing:
            return f"config has no {missing[0]!r}, by which an engine knows what to build; add it"
        if not isinstance(self.text_config.get("vocab_size"), int):
            return "config has no vocab_size; add it there, or to its text_config"
        return None
