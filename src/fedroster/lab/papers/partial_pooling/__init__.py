"""Partial pooling, a policy of fedroster's own, beside the policies of Qu et al. 2021.

There is no paper: docs/explanation/partial-pooling.md has the policy and its guarantee.  The four networks, hidden
causes and rates are in ``figures``, 10,000 clients in ``large``, training in ``training``.  What each part of the
policy brings is measured by ``benchmarks/partial_pooling.py``.
"""

from fedroster.lab.papers.partial_pooling.figures import FIGURES
from fedroster.lab.papers.partial_pooling.large import LARGE
from fedroster.lab.papers.partial_pooling.training import SCALES
from fedroster.lab.verdicts.paper import Paper

PAPER = Paper(title="Partial pooling beside COCS", rounds=1000, figures={**FIGURES, "large": LARGE}, scales=SCALES)
"""What is measured on partial pooling."""
