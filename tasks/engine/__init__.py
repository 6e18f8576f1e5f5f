"""Serving one cell: the command line, the process group, and noticing at once when it dies."""
