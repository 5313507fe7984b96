"""Local training of many small clients.  Only :mod:`fedroster.training.cohort` and the models need PyTorch."""
