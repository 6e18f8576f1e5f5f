"""Bad weather on the lab's cloud: a door that delays, cuts and refuses, and machines that are slow to come up."""
