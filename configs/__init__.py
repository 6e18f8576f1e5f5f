"""What to measure: YAML that anyone can edit, its typed readers, and the expansion of a sweep into cells."""
