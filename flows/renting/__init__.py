"""Where a cell is rented next, and when: offers, deadline, places that failed."""
