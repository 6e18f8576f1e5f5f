"""What a cloud itself says of our machines, without SkyPilot."""
