"""Which feasible set of links is best."""
