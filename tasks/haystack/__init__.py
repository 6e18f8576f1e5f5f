"""A long text with a needle in it: real prose, cut to a length by the tokenizer of the model that is served."""
