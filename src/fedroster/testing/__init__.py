r"""Contract tests that every policy, environment and engine's adapter must pass: subclass them to test your own.

Example:
    A file ``test_mine.py`` next to your policy is enough; run it with ``pytest test_mine.py``::

        from dataclasses import dataclass

        import numpy as np
        from fedroster.testing import PolicyContract
        from fedroster.types import Selection, Stateless


        @dataclass(frozen=True, slots=True)
        class Lottery(Stateless):
            '''Every client holds one ticket.'''

            def select(self, state, context, /, *, rng):
                ticket = np.where(context.available, rng.random(context.num_links), np.inf)
                size = min(context.cohort_size, int(context.available.sum()))
                return Selection(context.round, np.sort(np.argsort(ticket)[:size]))


        class TestLottery(PolicyContract):
            def policy(self):
                return Lottery()

pytest collects a subclass through its name, which starts with ``Test``.  Without pytest, one call runs the same tests:

    >>> from fedroster import Uniform
    >>> check_policy(Uniform())
"""

from fedroster.testing.check import check_environment, check_policy
from fedroster.testing.engine import EngineContract, RunningEngine, ScriptedClient
from fedroster.testing.environment import EnvironmentContract
from fedroster.testing.policy import HierarchicalPolicyContract, PolicyContract

__all__ = [
    "EngineContract",
    "EnvironmentContract",
    "HierarchicalPolicyContract",
    "PolicyContract",
    "RunningEngine",
    "ScriptedClient",
    "check_environment",
    "check_policy",
]
