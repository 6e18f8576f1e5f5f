"""Prompt suites under load, as rows of the dataset."""
