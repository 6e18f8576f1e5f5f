"""Which store this is: random, made once in it, so that a new one at an old one's address is another.

Its place counts, too: a copy in another folder, bucket or server holds all that the store holds, and must not take its
machines for its own. A copy at the same path of another machine, or of another `localhost`, can't be told from it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid

from warehouse.ledger.store.protocol import Store, StoreError

KEY = "runs/store.json"
"""Below `runs/`, where the keys of nodes may read. Whatever it holds, damaged or not, tells this store from others."""

ID_DIGITS = 24  # 120 bits, in letters and digits that labels of every cloud take


def known_id(store: Store) -> str | None:
    """The store's id, `ID_DIGITS` of `digits`; None: it has none, so nothing was rented for it. Only reads."""
    said = store.get(KEY)
    return None if said is None else digits(f"{store.location}\n".encode() + said, ID_DIGITS)


def store_id(store: Store) -> str:
    """The same, made first if need be; of many at once who make one, all get one."""
    known = known_id(store)
    if known is None:
        store.put_new(KEY, json.dumps({"id": uuid.uuid4().hex}).encode())
        known = known_id(store)
    if known is None:
        raise StoreError(f"{store.uri(KEY)} was written and is not there: use a store that shows what it has taken")
    return known


def digits(data: bytes, length: int) -> str:
    """The first of a hash's digits in base 32, 5 bits each: a to z and 2 to 7."""
    return base64.b32encode(hashlib.sha256(data).digest()).decode().lower()[:length]
