"""The Prefect of our own that runs beside a `sweep` command: its server and worker, its database, its commands."""
