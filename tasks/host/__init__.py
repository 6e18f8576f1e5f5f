"""The machine under the runner: Python environments and process groups."""
