"""What both a node and the dataset make of raw rows: one formula, one place."""
