"""Latencies of prompt suites under load, and whether an engine followed its schedule."""
