"""WHAT we know: the store, the ledger, the tables, and what is built from them."""
