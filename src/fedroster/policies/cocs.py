"""COCS: context-aware online client selection (Algorithm 1).

Z. Qu, R. Duan, L. Chen, J. Xu, Z. Lu and Y. Liu, "Context-Aware Online Client Selection for Hierarchical Federated
Learning", 2021, arXiv:2112.00925.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.because import Because
from fedroster.core.checks import check_number
from fedroster.core.errors import ConfigurationError
from fedroster.core.parameters import Count, Natural, NotNegative, Positive, ShareBelowOne
from fedroster.core.problem import Feedback, ProblemSpec, RoundContext, Selection, Status
from fedroster.core.protocols import Defaults, Draws
from fedroster.core.state import kept
from fedroster.estimation.hypercubes import (
    HypercubeState,
    cells_per_axis,
    check_hypercubes,
    context_cells,
    control,
    count_selections,
    count_successes,
    estimates,
    exploration_exponent,
    hypercubes_init,
    look_up,
)
from fedroster.optimization.budgeted import Choices, SolverOptions, choices_of

CITATION = """@misc{qu2021cocs,
  author = {Qu, Zhe and Duan, Rui and Chen, Lixing and Xu, Jie and Lu, Zhuo and Liu, Yao},
  title  = {Context-Aware Online Client Selection for Hierarchical Federated Learning},
  year   = {2021},
  eprint = {2112.00925},
  archivePrefix = {arXiv}
}"""


@dataclass(frozen=True, slots=True)
class COCSState:
    """What COCS knows; memory grows with the cells that were seen.

    Attributes:
        cells: Selections and updates in time of every cell that was seen.
        rounds: Rounds with a link to choose.
        exploring_rounds: Those of them that began with an under-explored link.
        chosen_links: Links that were chosen.
        exploring_links: Those of them that were under-explored.
    """

    cells: HypercubeState
    rounds: int = kept(0, "round")
    exploring_rounds: int = kept(0, "round")
    chosen_links: int = kept(0)
    exploring_links: int = kept(0)

    @property
    def explore_share(self) -> float:
        """Share of exploring rounds (Choice B11); 0 before the first round."""
        return self.exploring_rounds / self.rounds if self.rounds else 0.0


@dataclass(frozen=True, slots=True)
class COCS(SolverOptions, Defaults):
    r"""As many updates in time as the budgets buy, learned from contexts.

    Each round (Algorithm 1): find the hypercube of every link's context; a link is under-explored while its cell was
    chosen at most :math:`K(t) = t^z \log t` times (13).

    * Every client has an under-explored link: choose as many of these as possible (14).
    * Some have: first as many under-explored links as possible (15), then fill what the budgets have left with explored
      links of the greatest estimates (16), (17).
    * No link is under-explored: maximise the estimated utility, P2 or P3 (18), with (10d), too (Choice B7).

    Then count every chosen link, in time or not (Choice B1), and average (12).

    Guarantee: sublinear regret, :math:`O(T^{\frac{2\alpha+2}{3\alpha+2}} \log T)`, for D = 2 and contexts that fulfil
    Assumption 1 (Theorems 2 and 4, :func:`~fedroster.bounds.cocs_regret`); the constants are so large that the bound
    says something only for very long runs.  With scale 1, a thousand rounds of Table I's network never leave
    exploration: read every result with :attr:`COCSState.explore_share` (Choice B11).

    Cost per round: O(links) for the cells, and at most two problems of the kind of P2.  Memory: the cells that were
    seen.

    Attributes:
        h_T: Intervals on each axis of the context space; 5 in Table I, 0 to derive it from ``horizon`` and ``holder``.
        horizon: Number of rounds T; used to derive h_T.
        holder: Hoelder exponent alpha, > 0; 1 in Table I.
        z: Exponent of K(t), in [0, 1); 0 to derive it from ``holder``.
        scale: Scale factor on K(t), >= 0; 1 in the paper (Choice B11).  With 0 a cell is explored once chosen.
        low: Value of each feature that counts as 0; empty for contexts in [0, 1].
        high: Value of each feature that counts as 1; empty for contexts in [0, 1].
        solver, utility, epsilon, gap, node_limit: How (17) and (18) are solved
            (:class:`~fedroster.optimization.budgeted.SolverOptions`); (14) and (15) always by the exact solver.

    Deviations: a link that costs more than its server's whole budget cannot be explored and is not under-explored;
    otherwise exploration would never end.  (13)'s condition that the update be in time is dropped (Choice B1).  (14)
    as printed counts all links (10c) of the clients, explored ones too, so that a round could spend its budget without
    exploring anything, against the text ("select as many clients that have under-explored ESs") and Lemma 1, which
    counts on every such round raising a counter that is short; here it counts under-explored links, so it is (15)
    without a second stage.  Clients without a link in a round have no say in which case holds.
    """

    citation: ClassVar[str] = CITATION
    draws: ClassVar[Draws] = "never"
    fills_cohort: ClassVar[bool] = False
    needs_limits: ClassVar[bool] = True
    wants_contexts: ClassVar[bool] = True
    refuses_first: ClassVar[bool] = True

    h_T: Natural = 5
    horizon: Count = 1000
    holder: Positive = 1.0
    z: ShareBelowOne = 0.0
    scale: NotNegative = 1.0
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Check the ranges, and that there are as many bounds below as above."""
        SolverOptions.__post_init__(self)
        if len(self.low) != len(self.high):
            raise ConfigurationError(
                f"low and high have {len(self.low)} and {len(self.high)} entries; expected one each for every feature"
            )
        for below, above in zip(self.low, self.high, strict=True):
            check_number("high", above, above=below)

    @property
    def intervals(self) -> int:
        """Intervals on each axis: h_T, given or derived."""
        return self.h_T or cells_per_axis(self.horizon, self.holder)

    def control_at(self, round: int) -> float:
        """K(t): a cell of at most so many selections is under-explored."""
        return control(round, exponent=self.z or exploration_exponent(self.holder), scale=self.scale)

    def check(self, spec: ProblemSpec, /) -> None:
        """Refuse bounds for another number of features, and more cells than can be numbered."""
        if len(self.low) not in (0, spec.num_features):
            raise ConfigurationError(
                f"COCS has bounds for {len(self.low)} features; this federation's contexts have {spec.num_features}"
            )
        check_hypercubes(spec.num_clients, spec.num_servers, spec.num_features, self.intervals)

    def init(self, spec: ProblemSpec, /, *, rng: Generator) -> COCSState:
        """Algorithm 1, line 2."""
        cells = hypercubes_init(spec.num_clients, spec.num_servers, spec.num_features, cells_per_axis=self.intervals)
        return COCSState(cells=cells, rounds=0, exploring_rounds=0, chosen_links=0, exploring_links=0)

    def _cells(self, features: FloatArray, available: BoolArray | None = None) -> IntArray:
        return context_cells(features, cells_per_axis=self.intervals, available=available, low=self.low, high=self.high)

    def _known(
        self, state: COCSState, context: RoundContext, choices: Choices
    ) -> tuple[IntArray, FloatArray, BoolArray]:
        """Cell, estimate (12) and whether it is under-explored (13), of every choice."""
        cell = self._cells(context.features, context.available)[choices.rows]
        counts, successes = look_up(state.cells, choices.client, choices.server, cell)
        return cell, estimates(counts, successes), counts <= self.control_at(context.round)

    def select(self, state: COCSState, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Algorithm 1, lines 4 to 15; the largest proven gap of the problems that were solved is the selection's.

        Raises:
            InvalidInputError: If an available link's context is outside [0, 1], or a price or budget is malformed.
        """
        choices = choices_of(context)
        _, value, under = self._known(state, context, choices)
        links, gap, all_short = np.zeros(0, np.int64), 0.0, False
        if under.any():  # (14) and (15)
            rows = np.flatnonzero(under)
            most, gap = self.most_links(choices.part(rows), rng=rng)
            links = rows[most]
            all_short = np.unique(choices.client[under]).shape == np.unique(choices.client).shape
        if not all_short:  # (16); (17b), that only servers that can still afford a client choose, follows from it
            rows, left = choices.beside(links, ~under)
            best, proven = self.best_links(left, value[rows], rng=rng)  # (17) and (18)
            links = np.sort(np.concatenate((links, rows[best])))
            gap = float(np.maximum(gap, proven))
        return Selection(context.round, choices.rows[links], gap=gap)

    def explain(self, state: COCSState, context: RoundContext, selection: Selection, client: int, /) -> Because:
        """Links that were tried too little, or estimates."""
        return Because("untried" if self._known(state, context, choices_of(context))[2].any() else "worth")

    def commit(self, state: COCSState, context: RoundContext, selection: Selection, /) -> COCSState:
        """Algorithm 1, line 20: count every chosen link (Choice B1), and whether the round explored."""
        choices = choices_of(context)
        if choices.rows.shape[0] == 0:
            return state
        cell, _, under = self._known(state, context, choices)
        chosen = np.searchsorted(choices.rows, selection.links)
        client, server = choices.client[chosen], choices.server[chosen]
        return replace(
            state,
            cells=count_selections(state.cells, client, server, cell[chosen]),
            rounds=state.rounds + 1,
            exploring_rounds=state.exploring_rounds + int(under.any()),
            chosen_links=state.chosen_links + chosen.shape[0],
            exploring_links=state.exploring_links + int(np.count_nonzero(under[chosen])),
        )

    def update(self, state: COCSState, feedback: Feedback, /) -> COCSState:
        """Algorithm 1, lines 17 to 19: X is 1 for an update in time; all other feedback leaves it 0."""
        rows = np.flatnonzero(feedback.status == Status.COMPLETED)
        server = None if feedback.server is None else feedback.server[rows]
        cells = count_successes(state.cells, feedback.client[rows], server, self._cells(feedback.features[rows]))
        return replace(state, cells=cells)
