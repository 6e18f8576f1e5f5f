"""Which flow manages a cell's clusters, and when those ended that nobody saw end."""
