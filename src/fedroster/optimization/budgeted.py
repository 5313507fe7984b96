r"""What policies for links with prices share: which links a decision may use, and the best set of them.

With prices, a decision keeps every server's budget (10b) and gives a client one server (10d).  Without prices, as in a
flat federation, the cohort size takes the budgets' place: every link costs 1, all servers together may spend m.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.compiled import njit
from fedroster.core.errors import InvalidInputError
from fedroster.core.parameters import Natural, Parameters, Range, ShareBelowOne
from fedroster.core.problem import RoundContext, Selection
from fedroster.optimization.assignment import (
    NODE_LIMIT,
    VALUE_TOLERANCE,
    AssignmentResult,
    solve_assignment,
)
from fedroster.optimization.lazy_greedy import lazy_greedy

_PLACE_STEPS = 20  # halvings of the price of a place
AUTOMATIC_GAPS = ((1_000, 0.0), (50_000, 0.0025), (250_000, 0.005))
"""Proven gap at which the exact solver may stop by default, up to this many choices; 0.01 beyond."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The links that one decision may use.

    Attributes:
        rows: Their rows in the context, ascending, shape (choices,): available, and within the server's budget alone.
        client: Client of each, shape (choices,).
        server: Server of each, shape (choices,).
        cost: Price of each, shape (choices,), >= 0.
        purse: Budget that each draws on, shape (choices,): its server's, or 0 where all draw on the cohort size.
        budget: What each purse holds, shape (purses,), >= 0, finite.
        cohort_size: Largest number of links.
        num_clients: One more than the largest client index, or more.
    """

    rows: IntArray
    client: IntArray
    server: IntArray
    cost: FloatArray
    purse: IntArray
    budget: FloatArray
    cohort_size: int
    num_clients: int

    @property
    def links(self) -> tuple[FloatArray, IntArray, IntArray, FloatArray]:
        """Prices, clients, purses and budgets, as the solvers take them."""
        return self.cost, self.client, self.purse, self.budget

    def part(self, positions: IntArray) -> Choices:
        """Some of the links, ascending, under the same budgets."""
        names = "rows", "client", "server", "cost", "purse"
        return replace(self, **{name: getattr(self, name)[positions] for name in names})

    def beside(self, links: IntArray, usable: BoolArray) -> tuple[IntArray, Choices]:
        """What is left after some links are chosen: usable links of other clients, the rest of budgets and cohort.

        Returns their positions, ascending, and the choices.
        """
        taken = np.zeros(self.num_clients, np.bool_)
        taken[self.client[links]] = True
        spent = np.bincount(self.purse[links], weights=self.cost[links], minlength=self.budget.shape[0])
        rest = np.flatnonzero(usable & ~taken[self.client])
        left = np.maximum(self.budget - spent, 0.0)
        return rest, replace(self.part(rest), budget=left, cohort_size=self.cohort_size - links.shape[0])


def choices_of(context: RoundContext) -> Choices:
    """Return the links of a context that a decision may use.

    Args:
        context: The round's context.

    Raises:
        InvalidInputError: If the price of an available link or a budget is negative or no number, or there are not as
            many as links and servers.
    """
    rows = np.flatnonzero(context.available)
    client = context.clients_of(rows)
    server = np.zeros(rows.shape[0], np.int64) if context.server is None else context.server[rows]
    if context.cost is None or context.budget is None:
        cost, purse = np.ones(rows.shape[0]), np.zeros(rows.shape[0], np.int64)
        budget = np.array([float(context.cohort_size)])
    else:
        if context.cost.shape != (context.num_links,):
            raise InvalidInputError(f"cost has shape {context.cost.shape}; expected ({context.num_links},)")
        cost, purse, budget = context.cost[rows], server, context.budget.astype(np.float64)
        wrong = ~((cost >= 0.0) & (cost < np.inf))
        if wrong.any():
            row = int(rows[np.flatnonzero(wrong)[0]])
            raise InvalidInputError(f"cost of row {row} is {context.cost[row]}; expected a finite number >= 0")
        if budget.ndim != 1 or not (budget >= 0.0).all():
            raise InvalidInputError(f"budget is {budget.tolist()}; expected one number >= 0 for each server")
        if rows.shape[0] and int(purse.max()) >= budget.shape[0]:
            raise InvalidInputError(
                f"there are {budget.shape[0]} budgets, and server {int(purse.max())} has links; expected one each"
            )
        with np.errstate(over="ignore"):
            budget = np.minimum(budget, cost.sum() + 1.0)  # an infinite budget buys everything
    usable = cost <= budget[purse]
    if not usable.all():
        rows, client, server = rows[usable], client[usable], server[usable]
        cost, purse = cost[usable], purse[usable]
    num_clients = int(client.max()) + 1 if client.shape[0] else 0
    return Choices(rows, client, server, cost, purse, budget, context.cohort_size, num_clients)


def gap_for(num_choices: int, gap: float | None) -> float:
    """The proven gap at which the exact solver may stop.

    None, the default, depends on the number of choices alone, :data:`AUTOMATIC_GAPS`: the optimum up to 1,000 of them,
    and beyond what is mostly proven within a second.
    """
    if gap is not None:
        return gap
    return next((automatic for most, automatic in AUTOMATIC_GAPS if num_choices <= most), 0.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactOptions(Parameters):
    """How a policy solves P2; a base class of its parameters.

    Attributes:
        gap: The exact solver may stop at a proven gap of this size, in [0, 1); None for one by the number of choices, 0
            up to 1,000 (:func:`gap_for`).
        node_limit: The exact solver stops after this many search nodes, 0 for no limit, with the gap that it has
            proven.
    """

    gap: ShareBelowOne | None = None
    node_limit: Natural = NODE_LIMIT

    def best_links(self, choices: Choices, value: FloatArray, *, rng: Generator) -> tuple[IntArray, float]:
        """The best set of links: P2 (10).

        Args:
            choices: The links.
            value: Value of each, shape (choices,), finite, >= 0.  Links of value 0 are not chosen.
            rng: Breaks ties.

        Returns:
            Positions in ``choices``, ascending, and the proven gap to the optimum: 0 for a proven optimum, NaN where
            the solver proves none.
        """
        if not choices.rows.shape[0] or not choices.cohort_size:
            return np.zeros(0, np.int64), 0.0
        gap = gap_for(choices.rows.shape[0], self.gap)
        found = self._solve(choices, value, gap, rng)
        if found.links.shape[0] > choices.cohort_size:
            return self._within_places(choices, value, found, gap, rng)
        return found.links, found.gap

    def values(self, state: Any, choices: Choices, context: RoundContext) -> FloatArray:
        """What each choice is worth, shape (choices,), >= 0; policies that only solve P2 say this alone."""
        raise NotImplementedError

    def select(self, state: Any, context: RoundContext, /, *, rng: Generator) -> Selection:
        """Solve P2 for what each link is worth."""
        choices = choices_of(context)
        links, proven = self.best_links(choices, self.values(state, choices, context), rng=rng)
        return Selection(context.round, choices.rows[links], gap=proven)

    def _solve(self, choices: Choices, value: FloatArray, gap: float, rng: Generator) -> AssignmentResult:
        return solve_assignment(
            value, *choices.links, num_clients=choices.num_clients, gap=gap, rng=rng, node_limit=self.node_limit
        )

    def _within_places(
        self, choices: Choices, value: FloatArray, free: AssignmentResult, gap: float, rng: Generator
    ) -> tuple[IntArray, float]:
        r"""The best set of at most m links, where the budgets alone allow ``free``, more of them.

        A place has a price, found by bisection:

        .. math:: \max_{|s| \le m} \sum_s v \;\le\; \min_{\lambda \ge 0} \Bigl[ \lambda m
            + \max_s \sum_s (v - \lambda)^+ \Bigr]

        The gap is 0 unless the number of places and the prices leave one between them.
        """
        most = choices.cohort_size
        best = within_cohort(choices, free.links, value)
        worth, bound = float(value[best].sum()), free.upper_bound
        low, high = 0.0, float(value.max())
        rest = np.argsort(-value, kind="stable")[: np.count_nonzero(value)]
        for _ in range(_PLACE_STEPS):
            if bound - worth <= max(gap, VALUE_TOLERANCE) * bound:
                break
            price = 0.5 * (low + high)
            found = self._solve(choices, np.maximum(value - price, 0.0), gap, rng)
            bound = min(bound, price * most + found.upper_bound)
            # What is left of the places and the budgets goes to the best that fit.
            links = np.sort(fill_in_order(choices, np.concatenate((within_cohort(choices, found.links, value), rest))))
            if float(value[links].sum()) > worth:
                best, worth = links, float(value[links].sum())
            low, high = (price, high) if found.links.shape[0] > most else (low, price)
        return best, max(bound - worth, 0.0) / bound

    def most_links(self, choices: Choices, *, rng: Generator) -> tuple[IntArray, float]:
        """As many links as possible, (14) and (15): their positions, ascending, and the proven gap to the number."""
        ones = np.ones(choices.rows.shape[0])
        found = self._solve(choices, ones, gap_for(ones.shape[0], self.gap), rng)
        kept = within_cohort(choices, found.links, ones)
        most = min(found.upper_bound, float(choices.cohort_size))
        return kept, (most - kept.shape[0]) / max(most, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverOptions(ExactOptions):
    r"""The same for policies that leave the choice between the exact solver and the approximation of section V-A.

    Attributes:
        solver: "exact", or "fast-lazy-greedy".
        utility: What Fast Lazy Greedy maximises, "linear" for P2 or "square-root" for P3 (20); the exact solver decides
            alike for both, as the root is monotone (Choice B10).
        epsilon: Error parameter of Fast Lazy Greedy, in (0, 1]; 0.3 in section VI-D.
    """

    solver: Literal["exact", "fast-lazy-greedy"] = "exact"
    utility: Literal["linear", "square-root"] = "linear"
    epsilon: Annotated[float, Range(above=0.0, most=1.0)] = 0.3

    def best_links(self, choices: Choices, value: FloatArray, *, rng: Generator) -> tuple[IntArray, float]:
        """The best set of links by the solver that is asked for."""
        if self.solver == "exact":
            return ExactOptions.best_links(self, choices, value, rng=rng)
        rows = np.flatnonzero(choices.cost <= choices.budget[choices.purse])
        if not rows.shape[0]:
            return rows, 0.0
        links = lazy_greedy(
            value[rows],
            *choices.part(rows).links,
            num_clients=choices.num_clients,
            root=self.utility == "square-root",
            epsilon=self.epsilon,
            rng=rng,
        )
        return within_cohort(choices, rows[links], value), float("nan")


def within_cohort(choices: Choices, links: IntArray, value: FloatArray) -> IntArray:
    """Keep the chosen links of greatest value, ascending, where the budgets allow more than the cohort size does."""
    if links.shape[0] <= choices.cohort_size:
        return links
    return np.sort(links[np.argsort(-value[links], kind="stable")[: choices.cohort_size]])


@njit(cache=True, nogil=True)
def _fill(order, cost, client, purse, budget, taken, most):
    left = budget.copy()
    picks = np.empty(min(order.shape[0], most), np.int64)
    size = 0
    for i in order:
        if size == most:
            break
        if taken[client[i]] or cost[i] > left[purse[i]]:
            continue
        left[purse[i]] -= cost[i]
        taken[client[i]] = True
        picks[size] = i
        size += 1
    return picks[:size]


def fill_in_order(choices: Choices, order: IntArray) -> IntArray:
    """Take links in this order while the budgets, the cohort size and one server a client allow; those taken."""
    taken = np.zeros(choices.num_clients, np.bool_)
    picks: IntArray = _fill(order, *choices.links, taken, choices.cohort_size)
    return picks
