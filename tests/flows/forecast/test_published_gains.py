"""What the forecast expects of a technique is what its sources print, in the one place where their figures are."""

from __future__ import annotations

from inspect import getsource
from statistics import median

import pytest

from flows.forecast import decoding
from flows.forecast.decoding import GAIN_BY_METHOD, gain_at
from warehouse.published.read import WriteUp, load_write_up

DFLASH = "dflash-flash-attn"
"""Its source's technique: DFlash's method, with the drafter's attention backend."""


def rates(write_up: WriteUp, **identity: object) -> dict[str, float]:
    """The rate of each technique under one condition."""
    rows = [row for row in write_up.rows if row.tok_s is not None and row.workload is None]
    matching = [row for row in rows if all(getattr(row, name) == value for name, value in identity.items())]
    return {row.technique: row.tok_s for row in matching if row.tok_s is not None}


def test_the_gain_of_mtp_and_of_diffusion_is_the_middle_of_its_source() -> None:
    write_up = load_write_up("mtp-diffusion-h100")
    gains = [row.speedup for row in write_up.rows if row.speedup is not None and row.mode == "fixed"]
    assert len(gains) == 5
    assert GAIN_BY_METHOD["mtp"] == pytest.approx(median(gains), rel=0.02)
    diffusion = rates(write_up, model="diffusiongemma-26b-a4b", condition="short")["diffusion"]
    ar = rates(write_up, model="gemma-4-26b-a4b", condition="short")["ar"]
    assert GAIN_BY_METHOD["diffusion"] == round(diffusion / ar, 1)


def test_the_gain_of_dflash_lies_between_its_two_models() -> None:
    rows = load_write_up("mtp-dflash-h100").rows
    gains = sorted(row.speedup for row in rows if row.technique == DFLASH and row.concurrency == 1 and row.speedup)
    assert gains == [1.73, 3.03]
    assert gains[0] < GAIN_BY_METHOD["dflash"] < gains[1]


def test_the_docstring_of_fading_gains_quotes_its_source() -> None:
    write_up = load_write_up("mtp-dflash-h100")
    alone = rates(write_up, model="gemma-4-31b", concurrency=1)
    many = rates(write_up, model="gemma-4-31b", concurrency=16)
    source = read_source("GAIN_HALVES_AT")
    for technique in ("mtp", DFLASH):
        first, last = alone[technique] / alone["ar"], many[technique] / many["ar"]
        assert f"{first:.2f}x" in source and f"{last:.2f}x" in source
        halves_at = 15 / ((first - 1) / (last - 1) - 1)
        assert f"{halves_at:.0f}" in source
    moe_alone = rates(write_up, model="gemma-4-26b-a4b", concurrency=1)
    moe_many = rates(write_up, model="gemma-4-26b-a4b", concurrency=16)
    assert all(moe_many[name] / moe_many["ar"] > moe_alone[name] / moe_alone["ar"] for name in ("mtp", DFLASH))
    assert gain_at("mtp", 1) == GAIN_BY_METHOD["mtp"]


def read_source(constant: str) -> str:
    """The docstring under a constant of the forecast."""
    return getsource(decoding).split(f"\n{constant} = ")[1].split('"""')[1]
