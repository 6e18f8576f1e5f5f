"""Which container image a run's cells are served from: its tag is looked up once per run, so all nodes get the same."""

from __future__ import annotations

import hashlib

from configs.schema import Plan
from flows.clusters.skypilot.image_digest import pinned_image
from flows.clusters.skypilot.task_file import DOCKER, TaskFile
from warehouse.ledger import Ledger


def pinned_images(ledger: Ledger, plan: Plan, file: TaskFile) -> dict[str, str]:
    """Cell key to `name@sha256:...`, for cells whose engine has an image; empty if the task uses no container.

    Raises:
        ImageNotFound: a registry does not know an image, or can't be reached.
    """
    resources = file.config["resources"]
    if not str(resources.get("image_id", "")).startswith(DOCKER):
        return {}
    wanted = {planned.cell.cell_key: planned.cell.engine.image for planned in plan.cells}
    digests = {image: _pinned(ledger, image) for image in set(wanted.values()) if image}
    return {key: digests[image] for key, image in wanted.items() if image}


def _pinned(ledger: Ledger, image: str) -> str:
    """The image and digest that the run recorded first, whoever asked the registry."""
    key = f"{ledger.root}/images/{hashlib.sha256(image.encode()).hexdigest()[:16]}.txt"
    known = ledger.store.get(key)
    if known is None:
        ledger.store.put_new(key, pinned_image(image).encode())
        known = ledger.store.get(key)
    assert known is not None, "created just now, by us or by somebody else"
    return known.decode()
