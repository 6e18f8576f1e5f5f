"""WHAT we know, in three rooms: `ledger/` (what happened), `dataset/` (what it means), `report/` (how it looks)."""
