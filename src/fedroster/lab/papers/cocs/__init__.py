"""Qu et al. 2021: COCS beside Oracle, CUCB, LinUCB and random selection.

Figs. 3, 4b, 4d, 4f, 5 and 6 are in ``figures``, Figs. 2, 4a, 4c, 4e, 7 and Table II in ``training``.
"""

from fedroster.lab.papers.cocs.figures import FIGURES
from fedroster.lab.papers.cocs.training import SCALES
from fedroster.lab.verdicts.paper import Paper

PAPER = Paper(
    title="COCS: the paper's experiments, repeated",
    citation="Z. Qu, R. Duan, L. Chen, J. Xu, Z. Lu and Y. Liu, Context-Aware Online Client Selection for Hierarchical "
    "Federated Learning, 2021, arXiv:2112.00925",
    rounds=1000,
    figures=FIGURES,
    scales=SCALES,
)
"""The paper's figures and Table II."""
