"""Where and with what a step is measured: machine, cards, commits of the hub, price."""
