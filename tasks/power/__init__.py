"""What the cards tell while an engine works: power, energy, clocks, temperature, memory."""
