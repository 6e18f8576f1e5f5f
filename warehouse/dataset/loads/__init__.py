"""Rows of the dataset that timed steps make, beyond what all speeds share: suites under load, depths, workloads."""
