"""Policies compared in one scenario or several: who takes part, the runs, their tables and tests, figures and pages."""
