"""Prompt suites under load, as rows and sections of the report."""
