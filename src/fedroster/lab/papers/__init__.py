"""Published experiments repeated, one folder a paper: figures, claims and training.

Each folder has one object ``PAPER``, and the entry point group ``fedroster.papers`` names it.  Papers of other packages
register there in the same way; a folder here never imports another one.
"""
