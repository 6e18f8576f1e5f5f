"""What others measured and published, as data: a file per write-up, each figure as its source prints it."""
