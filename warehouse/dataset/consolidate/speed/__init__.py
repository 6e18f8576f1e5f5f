"""Speeds: from the windows of engine starts to rates, intervals and pairs."""
