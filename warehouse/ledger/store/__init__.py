"""Where everything is kept: one small protocol over a local folder and a bucket of S3 or Google.

Listing is used to find work, never as truth.
"""

from warehouse.ledger.store.opening import open_store
from warehouse.ledger.store.patience import until_back
from warehouse.ledger.store.protocol import Store, StoreAway, StoreError

__all__ = ["Store", "StoreAway", "StoreError", "open_store", "until_back"]
