"""What drafting is worth in theory, and which of several K to take."""
