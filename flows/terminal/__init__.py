"""The `sweep` command and everything it shows."""
