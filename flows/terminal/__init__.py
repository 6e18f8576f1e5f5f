"""The `sweep` command and all that it shows."""
