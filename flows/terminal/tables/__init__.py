"""What `sweep plan` prints: the matrix with hours and dollars, and what each evaluation can show."""
