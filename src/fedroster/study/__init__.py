"""Experiments: cells in parallel, measures, statistics, figures and reports."""
