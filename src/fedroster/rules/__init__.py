"""Which clients may take part, how many of each group, how often, and why not."""
