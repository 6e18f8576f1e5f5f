"""The reap flow: take down clusters without an owner. Deployed as `reap/hourly` (prefect.yaml)."""

from __future__ import annotations

import time

from prefect import flow, get_run_logger
from prefect.artifacts import create_table_artifact

from configs.errors import SpecsweepError
from flows.clusters.clouds import accounts
from flows.clusters.skypilot import api as sky_api
from flows.clusters.skypilot import home as sky_home
from flows.plans import store_url
from flows.prefect_view import run_name
from flows.reaper.books import Books
from flows.reaper.reap import reap_store
from warehouse.ledger.store import open_store


class ReapIncomplete(SpecsweepError):
    """Something could not be asked or taken down; the text says what."""


@flow(name="reap", flow_run_name=run_name, log_prints=True)
def reap(store: str | None = None, dry_run: bool = False) -> dict[str, object]:
    """Take down every cluster that nobody owns, and show what was found.

    Args:
        store: folder or `s3://bucket/prefix`; else SPECSWEEP_STORE, else `results/` of this checkout.
        dry_run: only say what would go down.

    Returns:
        The report (`ReapReport.document`).
    """
    logger = get_run_logger()
    opened = open_store(store_url(store))
    if not Books(opened).rented_once:
        # a laptop that only runs the demo gets no SkyPilot server from a scheduled run
        logger.info("nothing was ever rented for %s: nothing to reap", opened.url)
        return {"store": opened.url, "clusters": []}
    sky_home.enter()
    report = reap_store(opened, sky_api, accounts(), time.time(), dry_run=dry_run)
    rows = [each.texts() for each in report.reaped]
    create_table_artifact(key="reaped", table=rows, description=report.summary())
    for line in report.lines():
        logger.info("%s", line)
    if not report.ok:
        raise ReapIncomplete("; ".join(report.lines()[:-1]))
    return report.document()
