"""What evaluations are: `suites` has the table of them, `records` reads a dataset file of the user's."""
