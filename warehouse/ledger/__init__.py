"""WHAT happened: the store, commits, leases, raw tables as data, reason codes, endings. All that a node imports."""
