"""Memory and energy: rows of the dataset, and the page's section."""
