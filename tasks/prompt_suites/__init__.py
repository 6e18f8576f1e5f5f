"""Prompts by category, for load: from the hub, from a file, from our own list, or in the demo family's language."""
