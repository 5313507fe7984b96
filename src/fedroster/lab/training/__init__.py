"""Local training of many small clients.  Only :mod:`fedroster.lab.training.cohort` and the models need PyTorch."""
