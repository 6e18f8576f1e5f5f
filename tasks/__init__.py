"""HOW to measure, on the node, next to the engine. Imports neither Prefect, SkyPilot nor polars."""
