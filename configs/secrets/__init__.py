"""What may be known to one process only: keys of a store, tokens."""
