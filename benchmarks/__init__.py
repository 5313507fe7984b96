"""Speed and memory, as ratios against a peer or a physical limit in the same run.  Never asserted in a test."""
