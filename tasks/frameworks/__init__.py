"""Evaluation frameworks: each adapter's own environment has the standard library, the framework, and this folder."""
