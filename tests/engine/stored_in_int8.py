"""The demo family's target as compressed-tensors would store it in 8 bits: int8 with one scale per output channel.

The linear layers' weights become `weight` (int8) and `weight_scale` (float32, `[outputs, 1]`), the rest stays as it is:
the format that vLLM 0.32.0 reads as CompressedTensorsW8A8Int8. Activations are asymmetric: for those it takes oneDNN;
its kernel for symmetric ones ends on a virtual machine with AMX as an illegal instruction (2026-11-27).
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tasks.family import members

EIGHT_BITS = {"num_bits": 8, "type": "int"}
CONFIG = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {**EIGHT_BITS, "symmetric": True, "strategy": "channel", "dynamic": False},
            "input_activations": {**EIGHT_BITS, "symmetric": False, "strategy": "token", "dynamic": True},
        }
    },
}

Tensor = tuple[str, npt.NDArray[Any]]  # its type as safetensors names it, and its values; BF16 as 16-bit words


def store(folder: Path) -> Path:
    """Write the checkpoint into a new folder."""
    shutil.copytree(members.folder_of("target"), folder, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": CONFIG}), encoding="utf-8")
    tensors: dict[str, Tensor] = {}
    for name, (kind, words) in _read(members.folder_of("target") / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            tensors[name] = kind, words
            continue
        weight = (words.astype(np.uint32) << 16).view(np.float32)
        scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True), 1e-8) / 127
        tensors[name] = "I8", np.rint(weight / scale).astype(np.int8)
        tensors[f"{name}_scale"] = "F32", scale.astype(np.float32)
    _write(folder / "model.safetensors", tensors)
    return folder


def _read(path: Path) -> dict[str, Tensor]:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    header.pop("__metadata__", None)
    found: dict[str, Tensor] = {}
    for name, each in header.items():
        assert each["dtype"] == "BF16", f"{name} is {each['dtype']}"
        begin, end = each["data_offsets"]
        found[name] = "BF16", np.frombuffer(body[begin:end], dtype=np.uint16).reshape(each["shape"])
    return found


def _write(path: Path, tensors: dict[str, Tensor]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, (kind, values) in tensors.items():
        offsets = [len(body), len(body) + values.nbytes]
        header[name] = {"dtype": kind, "shape": [*values.shape], "data_offsets": offsets}
        body += np.ascontiguousarray(values).tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
