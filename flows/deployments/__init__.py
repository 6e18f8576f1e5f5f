"""Our deployments on a Prefect server that others use, too: which they are, how they beat, when they are scheduled."""
