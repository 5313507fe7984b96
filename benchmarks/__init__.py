"""Speed and memory, as ratios against a peer or a physical limit in the same run.  Never asserted in a test."""

from fedroster.core import compiled

compiled.INTERPRETED_ROWS = -1  # what is measured is the long run, not the first decisions of a process
