"""FLOOR, a policy of fedroster's own, beside RBCS-F (Huang et al. 2021).

There is no paper: docs/explanation/floor.md has the policy, its guarantee and the proof.
"""

from fedroster.papers.floor.figures import PAPER as PAPER
