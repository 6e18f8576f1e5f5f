"""How many tokens to draft: the page's section and its plots."""
