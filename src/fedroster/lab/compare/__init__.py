"""Policies compared in one scenario or several: the line-up, the runs, their tables and tests, figures and pages."""
