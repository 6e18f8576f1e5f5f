"""How figures are shown on the page, whatever they measure: `view` has the rows, `claims` what they support."""
