"""Shapes: whose config each is."""

from collections import Counter

import pytest

from configs.load import load_shape, names
from configs.without_weights import CheckpointShape

SHAPES = names("shapes")


def test_a_hub_id_leads_to_one_shape() -> None:
    claimed = Counter(hub_id for name in SHAPES for hub_id in load_shape(name).published_as)
    assert claimed["google/gemma-4-31B-it"] and set(claimed.values()) == {1}


@pytest.mark.parametrize("name", SHAPES)
def test_whose_config_it_is_changes_no_cell(name: str) -> None:
    shape = load_shape(name)
    assert shape.model_dump_json() == shape.model_copy(update={"published_as": ("a/b",)}).model_dump_json()
    assert CheckpointShape.model_validate_json(shape.model_dump_json()).published_as == ()
