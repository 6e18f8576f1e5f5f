"""Evaluation frameworks, each driven by a small adapter that runs inside the framework's own environment.

An adapter may import the standard library, its framework, and files of this folder; nothing else is installed there.
"""
