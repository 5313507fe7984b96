"""Links with prices: two servers with budgets, and a deadline, for policies that choose pairs."""

import numpy as np

from fedroster.catalogue import POLICIES, make_policy
from fedroster.core.problem import RoundContext

LIVE = [name for name in POLICIES if not make_policy(name).omniscient]
"""Policies that need no simulation."""
BUDGETED = [name for name in LIVE if getattr(make_policy(name), "needs_limits", False)]
"""Those of them that choose pairs."""


def priced_context(cost, client, server, budget, *, features=None, number=1, available=None, size=100):
    """A round by hand; all contexts are alike and all links available, if nothing else is said."""
    links = len(cost)
    return RoundContext(
        round=number,
        features=np.full((links, 2), 0.5) if features is None else np.asarray(features, np.float64),
        available=np.ones(links, np.bool_) if available is None else np.asarray(available),
        cohort_size=size,
        client=np.asarray(client, np.int64),
        server=np.asarray(server, np.int64),
        cost=np.asarray(cost, np.float64),
        budget=np.asarray(budget, np.float64),
    )
