"""Trials: one policy in one scenario with one seed, played by processes or by Ray, kept in files."""
