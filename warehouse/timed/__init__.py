"""What the timed steps keep: raw tables of requests and windows. Nodes import it."""
