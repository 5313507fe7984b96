"""FLOOR, a policy of fedroster's own, beside RBCS-F (Huang et al. 2021).

There is no paper: docs/explanation/floor.md has the policy, its guarantee and the proof.  Variants of the network and
traces are in ``worlds``, RBCS-F with both of its numbers tuned in ``tuned``, training in ``training``.  What each part
of FLOOR brings is measured by ``benchmarks/floor.py``.
"""

from fedroster.lab.papers.floor.training import SCALES
from fedroster.lab.papers.floor.tuned import TUNED
from fedroster.lab.papers.floor.worlds import FIGURES, TRACES
from fedroster.lab.verdicts.paper import Paper

PAPER = Paper(
    title="FLOOR beside RBCS-F",
    rounds=500,
    figures={**FIGURES, "tuned": TUNED, "traces": TRACES},
    scales=SCALES,
)
"""What is measured on FLOOR."""
