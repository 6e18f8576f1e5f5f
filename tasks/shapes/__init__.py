"""Folders that an engine takes for a checkpoint: config and tokenizer of a true shape, and no weights."""
