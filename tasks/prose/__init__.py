"""Real English prose, the same on every node of a run, and how it is cut to a length in tokens."""
