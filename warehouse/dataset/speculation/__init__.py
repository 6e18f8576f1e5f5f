"""How many tokens to draft: speeds over K with what theory expects of them, and a recommendation or its refusal."""
