"""The methods that a technique may name, one row each: what the pinned vLLM decodes with, and what is known of it.

Source: `SpeculativeMethod` of vllm/config/speculative.py, 0.32.0, and what drafts there (v1/worker/gpu_model_runner.py,
v1/worker/gpu/spec_decode/). Its `extract_hidden_states` writes a hidden state out and drafts nothing: not a technique.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pydantic_core import PydanticCustomError

MOST_K = 128
"""Tokens of a draft that vLLM checks at the most: `MAX_SPEC_LEN`, v1/sample/rejection_sampler.py.

Its second runner has no such number, nor has `generate()`: there it is our bound.
"""


class Method(NamedTuple):
    """What a method needs, and how its K is bounded.

    `gain`: expected speed over AR, one request at a time; None: none that we know of. `second`: whether it has a second
    checkpoint. `sizes`: keys of the drafter's config.json that say how many tokens it was trained to draft, `anchor` of
    which aren't drafts. `layers`: keys that say how many heads run in turn; a K beyond them is a multiple of them.
    """

    gain: float | None
    drafts: bool = True
    second: Literal["never", "may", "must"] = "must"
    is_network: bool = True  # its draft is one: idle means broken; what looks up may rightly find nothing to propose
    by_generate: bool = False  # whether `generate()` of transformers has it
    chooses_k: bool = False  # whether vLLM has a K for it where none is given
    sizes: tuple[str, ...] = ()
    anchor: int = 0
    layers: tuple[str, ...] = ()
    unserved: str | None = None  # why the pinned vLLM knows its name only

    def most_of(self, config: Mapping[str, Any]) -> int | None:
        """Tokens that a drafter of this config.json can draft at the most; None: it doesn't say."""
        said = _first(self.sizes, config)
        own: object = config.get("dflash_config")
        from_anchor = isinstance(own, dict) and own.get("sample_from_anchor") is True
        return None if said is None else said - (0 if from_anchor else self.anchor)

    def layers_of(self, config: Mapping[str, Any]) -> int | None:
        """Heads that run in turn; None: the config.json doesn't say."""
        return _first(self.layers, config)


_HEADS = ("mtp_num_hidden_layers", "num_nextn_predict_layers", "num_mtp_modules", "n_predict")

METHODS: Mapping[str, Method] = {
    "ar": Method(1.0, drafts=False, second="never", by_generate=True),
    "diffusion": Method(3.8, drafts=False, second="never"),
    "mtp": Method(1.7, second="may", by_generate=True, layers=_HEADS),
    "dflash": Method(2.0, sizes=("block_size",), anchor=1),
    "dspark": Method(1.8, second="may", sizes=("block_size", "dspark_block_size")),
    "draft_model": Method(1.4, by_generate=True),
    "eagle": Method(1.4, layers=("n_predict",)),
    "eagle3": Method(1.4, layers=("n_predict",)),
    "medusa": Method(1.4, sizes=("medusa_num_heads", "num_heads")),
    "mlp_speculator": Method(
        1.4, sizes=("n_predict",), unserved="its model is commented out in vllm/model_executor/models/registry.py"
    ),
    "ngram": Method(1.0, second="never", is_network=False, by_generate=True),
    "ngram_gpu": Method(1.0, second="never", is_network=False),
    "suffix": Method(1.0, second="never", is_network=False, chooses_k=True),
    "custom_class": Method(None, second="never", is_network=False),
}
"""Gains: mtp and diffusion are the middle of mtp-diffusion-h100, dflash is mtp-dflash-h100 (docs/sources.md); dspark is
the middle of three model cards on the hub (1.3, 1.8 and 2.6; Qwen3 and Qwen3.6, vLLM, 2026); the rest is cautious.
Sizes: a DFlash block's first place is the token before it (transformers_utils/configs/speculators/algos.py). Of Medusa
vLLM makes K heads, and none that the checkpoint lacks is ever filled (model_executor/models/medusa.py)."""

ALIASES: Mapping[str, str] = dict.fromkeys(
    (
        "bailing_hybrid_mtp", "bailing_hybrid_v3_mtp", "deepseek_mtp", "dots3_note_mtp", "ernie_mtp", "exaone4_5_mtp",
        "exaone_moe_mtp", "gemma4_mtp", "glm4_moe_lite_mtp", "glm4_moe_mtp", "glm5_next_mtp", "glm_ocr_mtp",
        "hy_v3_mtp", "hy_v4_mtp", "inkling_mtp", "kimi_k3_mtp", "longcat_flash_mtp", "mimo_mtp", "mimo_v2_mtp",
        "minimax_m3_mtp", "nemotron_h_mtp", "pangu_ultra_moe_mtp", "qwen3_5_mtp", "qwen3_next_mtp", "qwen4_exp_mtp",
        "step3p5_mtp",
    ),
    "mtp",
)  # fmt: skip
"""Names that vLLM still takes and calls deprecated (`MTPModelTypes`), and the method that each is."""

SCHEDULE = "num_assistant_tokens_schedule"
"""Key of `speculative_config` that `generate()` alone knows: how K goes on from where a row begins it."""

SCHEDULES = ("constant", "heuristic", "heuristic_transient")


def known(said: str) -> str:
    """The name as it was given. Raises PydanticCustomError, as a Literal does: no method, nor another name of one."""
    if said not in METHODS and said not in ALIASES:
        names = ", ".join(map(repr, METHODS))
        raise PydanticCustomError("literal_error", "one of {expected}", {"expected": names})
    return said


def _first(keys: tuple[str, ...], config: Mapping[str, Any]) -> int | None:
    """The first number that a config has under one of the keys, or the language model's part of it."""
    part = config.get("text_config")
    places = (config, part) if isinstance(part, dict) else (config,)
    found = (place.get(key) for place in places for key in keys)
    return next((number for number in found if isinstance(number, int) and number > 0), None)
