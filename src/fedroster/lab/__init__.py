"""The laboratory: worlds, data, training, trials, comparisons, pages, verdicts, planning, replay, papers.

It imports the instrument by its door only; the instrument never imports it.
"""
