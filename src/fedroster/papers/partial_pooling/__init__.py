"""Partial pooling, a policy of fedroster's own, beside the policies of Qu et al. 2021.

There is no paper: docs/explanation/partial-pooling.md has the policy and its guarantee.
"""

from fedroster.papers.partial_pooling.figures import PAPER as PAPER
