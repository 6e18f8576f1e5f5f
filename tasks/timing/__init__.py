"""How a speed is timed: windows, their number, the client that watches itself, and what the guards say of them."""
