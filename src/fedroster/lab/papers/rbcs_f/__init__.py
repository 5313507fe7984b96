"""Huang et al. 2021: RBCS-F beside random selection and FedCS.

Figs. 2, 3 and 4, the regret beside Theorem 3 and the sensitivity to alpha are in ``figures``, Figs. 5, 6 and 7 in
``training``.
"""

from fedroster.lab.papers.rbcs_f.figures import FIGURES
from fedroster.lab.papers.rbcs_f.training import SCALES
from fedroster.lab.verdicts.paper import Paper

PAPER = Paper(
    title="RBCS-F: the paper's experiments, repeated",
    citation="T. Huang, W. Lin, W. Wu, L. He, K. Li and A. Y. Zomaya, An Efficiency-Boosting Client Selection Scheme "
    "for Federated Learning with Fairness Guarantee, IEEE Transactions on Parallel and Distributed Systems, 2021, "
    "doi:10.1109/TPDS.2020.3040887",
    rounds=500,
    figures=FIGURES,
    scales=SCALES,
)
"""The paper's figures, its regret and its sensitivity to alpha."""
