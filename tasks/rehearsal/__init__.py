"""A cell's real command, tried by the pinned engine's own configuration code before anything is rented."""
