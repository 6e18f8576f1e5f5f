"""What all evaluation steps write and what is made of it: raw tables, scores and comparisons, report sections."""
