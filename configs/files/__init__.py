"""YAML files and where they are found: read with line numbers, parsed into frozen models, looked up by name."""
