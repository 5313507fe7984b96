"""A selector of a federation with edge servers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack, cast

from numpy.typing import ArrayLike

from fedroster.core.arrays import IntArray
from fedroster.core.checks import check_number, shown
from fedroster.core.errors import ConfigurationError
from fedroster.core.ids import ClientId
from fedroster.core.protocols import AnyPolicy
from fedroster.folder.events import Asked, BegunLine, Reach
from fedroster.selector.calls import whole
from fedroster.selector.candidates import Contexts, links_of, prices_of
from fedroster.selector.keeping import Beginnings, made_with
from fedroster.selector.selector import Cohort, Selector


@dataclass(frozen=True, slots=True)
class EdgeCohort(Cohort):
    """The clients that take part in a round, and where.

    Attributes:
        servers: Edge server of each chosen client.
    """

    servers: tuple[str, ...] = ()


class EdgeSelector(Selector):
    """A :class:`Selector` of a federation with edge servers: it also assigns the cohort to them.

    A client may be reached by some edge servers; the policy uses it on one of them at most and keeps every server's
    budget.

    Example:
        >>> from fedroster import EdgeSelector
        >>> from fedroster.policies import COCS
        >>> selector = EdgeSelector(COCS(), budgets={"north": 1.0, "south": 2.0}, cohort_size=3, clients=["a", "b"])
        >>> cohort = selector.select(servers={"a": ["north", "south"], "b": ["south"]})
        >>> cohort.clients
        ('a', 'b')
    """

    _KIND = "edge-selector"

    def __init__(
        self,
        policy: AnyPolicy,
        *,
        budgets: Mapping[str, float],
        cohort_size: int,
        **beginnings: Unpack[Beginnings],
    ) -> None:
        """Start a federation.

        Args:
            policy: Decides among links with prices, such as COCS.
            budgets: What each edge server may spend in a round, by its label, >= 0.
            cohort_size: Largest number of clients in a round.
            **beginnings: As for :class:`Selector`: ``num_features``, ``seed``, ``clients``, ``patience_rounds``,
                ``longest_s``, ``guarded`` (contexts are not checked here), ``longest_absence``,
                ``failures``, ``rules``, ``clock`` and ``observers``.

        Raises:
            ConfigurationError: If a parameter is out of its range, or the policy cannot keep budgets.
            InfeasibleError: If the policy's promise cannot be kept for these clients.
        """
        if not isinstance(budgets, Mapping) or not budgets:
            raise ConfigurationError(
                f"budgets are {shown(budgets)}; expected a mapping from the label of each edge server to its budget"
            )
        for label, budget in budgets.items():
            if not isinstance(label, str):
                raise ConfigurationError(f"an edge server has the label {shown(label)}; expected a string")
            check_number(f"budget of server {label!r}", budget, least=0.0)
        self.budgets = {label: float(budget) for label, budget in budgets.items()}
        self._budgets = [*self.budgets.items()]  # their order numbers the servers
        super().__init__(policy, cohort_size=cohort_size, **beginnings)

    @whole
    def select(
        self,
        contexts: Contexts = None,
        *,
        clients: Sequence[ClientId] | None = None,
        available: ArrayLike | None = None,
        servers: Mapping[ClientId, Sequence[str]] | Sequence[Sequence[str]] | None = None,
        prices: Mapping[ClientId, float] | ArrayLike | None = None,
        not_registered: Collection[ClientId] = (),
        at_most: int | None = None,
        busy: bool | None = None,
    ) -> EdgeCohort:
        """Begin a round, choose its cohort and assign it to edge servers.

        Args:
            contexts: The clients that are available, and what is known of them; this and what is not said here is as in
                :meth:`Selector.select`.
            clients: Ids of the rows of an array.
            available: Which of these are available, shape (clients,).
            servers: Labels of the edge servers that reach each client, by id or in the order in which clients are named
                here; unknown labels are passed over.  None if every server reaches every client.
            prices: Cost of using each client, >= 0, in the same form; None for 1.  The operator sets prices. If
                only the client knows its price, use ``costs`` in :meth:`observe`, else a client that says 0 is always
                chosen.
            not_registered: Clients whose name is only what they say of themselves.
            at_most: Fill this many places.
            busy: Whether clients that still owe an answer can be chosen.

        Raises:
            InvalidInputError: If a price is malformed, beside what :meth:`Selector.select` raises.
        """
        named: dict[str, Any] = {"clients": clients, "available": available, "not_registered": not_registered}
        named["servers"], named["prices"] = servers, prices
        decided = self._select(contexts, at_most=at_most, busy=busy, **named)
        labels, at = [*self.budgets], cast("IntArray", decided.servers)
        where = tuple(labels[number] for number in at)
        return EdgeCohort(decided.round, self._named(decided.chosen), where, weights=decided.weights_by_client)

    def _asked(
        self,
        contexts: Contexts = None,
        *,
        servers: Mapping[ClientId, Sequence[str]] | Sequence[Sequence[str]] | None = None,
        prices: Mapping[ClientId, float] | ArrayLike | None = None,
        **named: Any,
    ) -> Asked:
        asked = super()._asked(contexts, **named)
        row, server = links_of(self._members, list(self.budgets), servers, asked.slot)
        return replace(asked, links=Reach(row, server, prices_of(self._members, prices, asked.slot)))


KINDS: dict[str, type[Selector]] = {Selector._KIND: Selector, EdgeSelector._KIND: EdgeSelector}
"""The classes of selectors, by what their files call them."""


def begun(policy: AnyPolicy, event: BegunLine) -> Selector:
    """A selector at the beginning that a log of one tells of; a log never says which code to run."""
    return KINDS[event.of](policy, **made_with(event.settings, event.num_features))
