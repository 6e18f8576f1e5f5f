"""Prompt processing and token generation at context depths: rows of the dataset, and the report's section."""
