"""Before a run starts: the hours and dollars that it will take, and its budgets."""
