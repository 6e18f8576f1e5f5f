"""A runner without patience, for a PYTHONPATH: a request may stand still for FAKE_QUIET_S instead of 300 s.

The bound is a constant and no user's setting. What it bounds, and what ends a request that reaches it, is the
product's.
"""

from __future__ import annotations

import os

from tasks.wire import connection

connection.PATIENCE = connection.PATIENCE._replace(quiet_s=float(os.environ["FAKE_QUIET_S"]))
