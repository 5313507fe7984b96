"""Sampling with probabilities proportional to the clients' numbers of samples.

X. Li, K. Huang, W. Yang, S. Wang and Z. Zhang, "On the Convergence of FedAvg on Non-IID Data", ICLR 2020,
arXiv:1907.02189.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.errors import ConfigurationError
from fedroster.core.parameters import Column
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection
from fedroster.core.protocols import ForOneServer
from fedroster.core.state import per_client
from fedroster.estimation.reports import assumed_sizes, learn_sizes
from fedroster.optimization.ranking import sample_by_weight

CITATION = """@inproceedings{li2020convergence,
  author    = {Li, Xiang and Huang, Kaixuan and Yang, Wenhao and Wang, Shusen and Zhang, Zhihua},
  title     = {On the Convergence of {FedAvg} on Non-{IID} Data},
  booktitle = {International Conference on Learning Representations (ICLR)},
  year      = {2020},
  eprint    = {1907.02189},
  archivePrefix = {arXiv}
}"""


@dataclass(frozen=True, slots=True)
class SizesState:
    """What is known of the clients' data.

    Attributes:
        num_samples: Samples of each client, shape (clients,), as last reported; 0 for not yet.
    """

    num_samples: FloatArray = per_client(least=0.0)


def check_feature(name: str, feature: int, spec: ProblemSpec) -> None:
    """Refuse a column that contexts do not have.

    Args:
        name: Name of the parameter.
        feature: The column; negative for none.
        spec: The problem.

    Raises:
        ConfigurationError: If there are not this many columns.
    """
    if feature >= spec.num_features:
        raise ConfigurationError(
            f"{name} is {feature}; expected a column of the context, 0 to {spec.num_features - 1}, or -1 for none"
        )


class LearnsSizes(ForOneServer):
    """A policy that knows how many samples each client holds, and may draw by it."""

    __slots__ = ()

    wants_losses: ClassVar[bool] = True
    refuses_first: ClassVar[bool] = True

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> Any:
        """Know no size."""
        return SizesState(np.zeros(spec.num_clients))

    def update(self, state: Any, feedback: Feedback, /) -> Any:
        """Learn the sizes."""
        learn_sizes(state.num_samples, feedback)
        return state


class CountsDraws(LearnsSizes):
    """One that lets a client's update count as often as it was drawn."""

    __slots__ = ()

    refuses_first: ClassVar[bool] = True

    def weights(self, state: Any, context: RoundContext, selection: Selection, /) -> FloatArray:
        """Draws over places, shape (k,)."""
        drawn: FloatArray = np.ones(selection.links.shape[0]) if selection.drawn is None else selection.drawn
        return drawn / context.cohort_size


@dataclass(frozen=True, slots=True)
class SizeWeighted(LearnsSizes):
    r"""Clients are drawn one after the other, the next with probability :math:`n_i / \sum_j n_j` among those left.

    Scheme I of Li et al. draws with replacement, so that a client may count twice; a cohort here is a set, and it is
    drawn without.

    Sizes come from a column of the context, or from feedback: until a client has reported, it is taken to hold as much
    as the others on average.  Without reported sizes, as in a simulation without training, every cohort is equally
    likely.

    Guarantee: none; clients with more data take part more often.  Cost: O(N).

    Attributes:
        size_feature: Column of the context that holds a client's number of samples; -1 for feedback.
    """

    citation: ClassVar[str] = CITATION
    refuses_first: ClassVar[bool] = True
    decides: ClassVar[str] = "drawn"

    size_feature: Column = -1

    def check(self, spec: ProblemSpec, /) -> None:
        """Refuse more than one server, and a column that contexts do not have."""
        ForOneServer.check(self, spec)
        check_feature("size_feature", self.size_feature, spec)

    def _weight(self, state: SizesState, context: RoundContext, rows: IntArray) -> FloatArray:
        if self.size_feature < 0:
            return assumed_sizes(state.num_samples)[context.clients_of(rows)]
        weight: FloatArray = np.maximum(context.features[rows, self.size_feature], 0.0)
        return weight

    def select(self, state: SizesState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Draw without replacement."""
        rows = np.flatnonzero(context.available)
        weight = self._weight(state, context, rows)
        return Selection(context.round, rows[sample_by_weight(weight, context.cohort_size, rng=rng)])
