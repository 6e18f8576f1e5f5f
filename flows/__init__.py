"""WHO does what when: Prefect flows, the clusters they use, and the `sweep` command."""
