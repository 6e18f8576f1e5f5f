"""From committed parts to rows, for all kinds of steps; `warehouse.dataset.build` puts the rows together."""
