"""What rented machines cost: the bill of a cell, and what a run or a month has spent."""
