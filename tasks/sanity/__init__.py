"""Ten questions that no working model misses, asked of every real model before hours are spent on it."""
