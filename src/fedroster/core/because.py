"""Why a policy chose a client in a round, or did not, and what would have turned the decision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from fedroster.core.arrays import BoolArray, IntArray
from fedroster.core.problem import RoundContext, Selection
from fedroster.core.protocols import draws

Reason: TypeAlias = Literal[
    "everybody", "urgent", "owed", "price", "time", "turn", "loss", "tier", "worth", "untried", "arm", "away", "drawn"
]
"""What decided: room for all, a debt that must be met, what is owed, the price of a place, time, whose turn it is,
losses, the tier of speed, the best links, links that were hardly tried, a cohort of a fixed pool, who will be
away, chance."""

Quantity: TypeAlias = Literal["expected_s", "owed", "last", "chosen", "loss"]
"""Expected time (s), participations owed, round of the last turn (0 for never), rounds as one of a cohort, loss."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a decision on a client turns: beyond it the decision is the other one, all else as it was.

    Attributes:
        quantity: Of what.
        value: What it was.
        bound: Where it turns; before it chance may decide among equals.
        above: Whether the decision is the other one above the bound, or below it.
    """

    quantity: Quantity
    value: float
    bound: float
    above: bool


@dataclass(frozen=True, slots=True)
class Because:
    """Why a policy chose a client, or did not.

    Attributes:
        reason: What decided.
        limits: What would have turned the decision, each alone; only what is known exactly.
        chance: Probability with which the client was drawn, in [0, 1]; NaN where chance did not decide, or where it is
            not known.
    """

    reason: Reason
    limits: tuple[Limit, ...] = ()
    chance: float = math.nan


def turning(
    quantity: Quantity,
    value: float,
    bound: float,
    *,
    chosen: bool,
    favours: Literal["more", "less"],
    least: float = 0.0,
) -> tuple[Limit, ...]:
    """The limit of a quantity that ``favours`` the client; none where no value >= ``least`` is beyond it."""
    above = (favours == "more") != chosen
    is_there = math.isfinite(bound) and (value <= bound if above else least < bound <= value)
    return (Limit(quantity, float(value), float(bound), above),) if is_there else ()


def of_client(context: RoundContext, selection: Selection, client: int) -> tuple[IntArray, BoolArray, bool]:
    """Rows that are available, which of them are a client's, and whether one of these was chosen."""
    rows = np.flatnonzero(context.available)
    return rows, context.clients_of(rows) == client, bool((context.clients_of(selection.links) == client).any())


def because(policy: Any, state: Any, context: RoundContext, selection: Selection, client: int) -> Because | None:
    """Why a policy chose a client, or did not; None where it does not say, or the client is not available.

    A policy says it by ``explain``, or by ``decides`` where all of its decisions have one reason.
    """
    rows, own, chosen = of_client(context, selection, client)
    if not own.any():
        return None
    if chosen and context.cost is None and rows.shape[0] <= context.cohort_size:
        return Because("everybody")
    if hasattr(policy, "explain"):
        reason: Because = policy.explain(state, context, selection, client)
        return reason
    if draws(policy) == "uniform":
        flat = context.cost is None and context.client is None
        return Because("drawn", chance=context.cohort_size / rows.shape[0] if flat else math.nan)
    return Because(policy.decides) if hasattr(policy, "decides") else None
