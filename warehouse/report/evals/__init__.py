"""The page's section about accuracy."""
