"""Clusters through the user's own SkyPilot."""
