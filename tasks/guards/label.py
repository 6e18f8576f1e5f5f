"""Guard on what an engine loaded: bf16 under an int8 label, or 4 bits under a bf16 one, is another cell's measurement.

- The format that the engine resolved, and what it says of its layers: exact words, no tolerance.
- Bytes of the weights on a card, where its log has them, over the parameters of the model's file. A right cell strays
  far from its label's own bytes: embeddings, norms and a vision tower often stay in 16 bits, scales add some, and
  `--language-model-only` leaves the tower out. So only what no right cell shows is a contradiction. Under a label of
  fewer bits: as many bytes as if all were in 16 (of a right one 80 % of the parameters would have to be). Under a label
  of 16: no more than 1.2 (the tower would have to be 40 %). Below .4 it isn't this model at all.

What the engine doesn't say, and what lies between, gives no verdict.
"""

from __future__ import annotations

import re

from configs.cell import Cell, Precision, argument
from tasks.engine.loaded import NO_QUANTIZATION, Loaded
from warehouse.ledger.verdicts import Finding, Reason

SIXTEEN_BITS = 2.0  # bytes of a parameter
ALL_IN_SIXTEEN_BITS = (1.8, 2.2)  # bytes a parameter: a tower was left out, or buffers are in it
FEWER_BITS = (0.4, 1.2)

DTYPE_BYTES = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0}
OTHER_NAMES = {"half": "float16", "float": "float32"}  # of vLLM's --dtype

_KIND = re.compile(r"mxfp8|mxfp4|nvfp4|fp8|int8", re.IGNORECASE)
_OTHER_WEIGHTS = re.compile(r"W[4N]A\d", re.IGNORECASE)  # 4 bits or any number; the rest is said of activations


def unlike_its_label(cell: Cell, loaded: Loaded) -> Finding | None:
    """Why what was loaded is not what the cell's label says, with both; None: it is, or the engine doesn't tell."""
    checks = (_dtype, _format, _kind, _bytes)
    found = next((text for check in checks if (text := check(cell, loaded)) is not None), None)
    if found is None:
        return None
    said = (f"quantization={loaded.quantization}", f"dtype={loaded.dtype}", *loaded.formats)
    label = f"{cell.label}: {cell.precision.name} is {cell.precision.bytes_per_param:g} bytes a parameter"
    remedy = "give the cell the precision that it has, or the model a checkpoint in this one"
    return Finding(Reason.UNLIKE_ITS_LABEL, "rejected", f"{label}, but {found} (its log: {'; '.join(said)}): {remedy}")


def _dtype(cell: Cell, loaded: Loaded) -> str | None:
    wanted = OTHER_NAMES.get(cell.precision.dtype or "auto", cell.precision.dtype)
    if loaded.dtype is None or wanted in (None, "auto"):
        return None
    return None if loaded.dtype == wanted else f"the engine computes in {loaded.dtype}, not in {wanted}"


def _format(cell: Cell, loaded: Loaded) -> str | None:
    if _is_quantized(cell.precision):
        if loaded.quantization == NO_QUANTIZATION:
            return "the engine quantized nothing"
        touches_none = loaded.quantized_while_loading == 0 and not loaded.formats
        return f"{loaded.quantization} applies to no layer of this model" if touches_none else None
    if loaded.quantization not in (None, NO_QUANTIZATION):
        return f"the checkpoint is in {loaded.quantization}"
    has = DTYPE_BYTES.get(loaded.dtype or "", cell.precision.bytes_per_param)
    return None if has == cell.precision.bytes_per_param else f"{loaded.dtype} is {has:g}"


def _kind(cell: Cell, loaded: Loaded) -> str | None:
    """Integers under a label of floats, or the other way round: as many bytes, other kernels and other errors."""
    if cell.technique.drafts or not _is_quantized(cell.precision):  # what drafts logs formats of its own
        return None
    asked, has = _kinds(cell.precision.quantization or cell.precision.name), [*map(_kinds, loaded.formats)]
    found = set().union(*has)
    if len(asked) != 1 or not has or not all(has) or asked & found:
        return None
    return f"its quantized layers are in {' and '.join(sorted(found))}, not in {' '.join(asked)}"


def _kinds(words: str) -> set[str]:
    return set() if _OTHER_WEIGHTS.search(words) else {kind.lower() for kind in _KIND.findall(words)}


def _bytes(cell: Cell, loaded: Loaded) -> str | None:
    """Of engines whose one copy is on its cards, and has no draft beside it."""
    spread = cell.cards != cell.cards_a_copy or argument(cell.engine_words, "cpu_offload_gb") is not None
    if loaded.weights_bytes is None or cell.technique.drafts or spread:
        return None
    parameters = cell.model.total_params_b * 1e9 / cell.cards_a_copy
    each = loaded.weights_bytes / parameters
    low, high = ALL_IN_SIXTEEN_BITS if _is_quantized(cell.precision) else FEWER_BITS
    if not low <= each <= high:
        return None
    return (
        f"{loaded.weights_bytes / 1e9:.1f} GB were loaded on a card for {parameters / 1e9:.1f} billion parameters, "
        f"{each:.2f} bytes each"
    )


def _is_quantized(precision: Precision) -> bool:
    return precision.bytes_per_param < SIXTEEN_BITS
