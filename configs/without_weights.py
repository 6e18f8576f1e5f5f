"""In place of weights: a checkpoint's shape, and published acceptance. Both are part of the cell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field, JsonValue

from configs.errors import SpecsweepError
from configs.files import Fault
from configs.frozen import Frozen


class CheckpointShape(Frozen):
    """A checkpoint without weights: its `config.json` and `generation_config.json`; the tokenizer is our own.

    Speed depends on them, on precision and on kernels, not on what the weights say.
    """

    name: str
    config: dict[str, JsonValue]
    generation: dict[str, JsonValue] = Field(default_factory=dict)
    published_as: tuple[str, ...] = Field(
        (), exclude=True, description="hub ids of which this is the config, towers aside; no part of a cell"
    )

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
        """Entries of the vocabulary; raises `KeyError` where the config doesn't say, which `faults` tells the user."""
        return int(self.text_config["vocab_size"])

    @property
    def canvas_length(self) -> int | None:
        """Tokens that a block-diffusion model denoises together; None for any other model."""
        tokens = self.config.get("canvas_length")
        return tokens if isinstance(tokens, int) else None

    def faults(self) -> Iterator[Fault]:
        """What keeps a folder from being made of it."""
        for key in ("architectures", "model_type"):
            if key not in self.config:
                yield ("config",), f"config has no {key!r}, by which an engine knows what to build; add it"
        if not isinstance(self.text_config.get("vocab_size"), int):
            yield ("config",), "config has no vocab_size; add it there, or to its text_config"


class KTooLong(SpecsweepError):
    """No published table reaches as far as the cell drafts."""


class Replay(Frozen):
    """What a row asks for: the name of a file in `replays/`."""

    replay: str


class MeasuredRates(Frozen):
    """Share of the drafts that were accepted up to each position, from a run that drafted `k` tokens."""

    k: int = Field(gt=0)
    rates: tuple[float, ...] = Field(min_length=1)


class PublishedAcceptance(Frozen):
    """A published table. Rates are unconditional: that of position i counts drafts whose first i tokens all held."""

    name: str
    source: str = Field(description="title, author, date")
    url: str
    of: str = Field(description="what was measured: model, technique, text")
    tables: tuple[MeasuredRates, ...] = Field(min_length=1)

    def at(self, k: int) -> ReplayedAcceptance:
        """The rates for a K: those measured at that K, else the first of the shortest longer table, else `KTooLong`."""
        long_enough = [table for table in self.tables if table.k >= k]
        if not long_enough:
            longest = max(table.k for table in self.tables)
            raise KTooLong(f"{k} is more than {self.name!r} was published for; accepted: 1 to {longest}")
        table = min(long_enough, key=lambda each: each.k)
        return ReplayedAcceptance(name=self.name, rates=table.rates[:k])

    def faults(self) -> Iterator[Fault]:
        """What the engine would refuse, or what no measurement can have shown."""
        for k, rates in ((table.k, table.rates) for table in self.tables):
            if len(rates) != k:
                yield ("tables",), f"K={k} has {len(rates)} rates; accepted: one for each position"
            if not all(1 >= a >= b >= 0 for a, b in zip(rates, (*rates[1:], 0.0), strict=True)):
                why = "a position counts only after those before it"
                yield ("tables",), f"the rates of K={k} must fall from 1 to 0: {why}"


class ReplayedAcceptance(Frozen):
    """What a cell is served with: which table, and its rates up to the cell's K. It says so wherever it is shown."""

    name: str
    rates: tuple[float, ...]

    @property
    def label(self) -> str:
        """As in the dataset's `acceptance_source`."""
        return f"replayed:{self.name}"

    @property
    def speculative_config(self) -> dict[str, JsonValue]:
        """Its part of vLLM's `--speculative-config`."""
        return {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": list(self.rates)}
