"""One attempt in parts: what is recorded of it, and how it is followed to its end."""
