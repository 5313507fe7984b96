"""What a selector answers: the clients of a round."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedroster.core.ids import ClientId


@dataclass(frozen=True, slots=True)
class Cohort:
    """The clients that take part in a round.

    Attributes:
        round: Round number; feedback refers to it.
        clients: Ids of the chosen clients.  Empty when no client was available.
        weights: How much each client's update counts, >= 0 and not normalised: the model moves by the step size times
            the sum of weight times update over those that arrive.  None for weights by samples.
    """

    round: int
    clients: tuple[ClientId, ...]
    weights: tuple[float, ...] | None = field(default=None, kw_only=True)

    @property
    def is_empty(self) -> bool:
        """Whether no client was chosen."""
        return not self.clients


@dataclass(frozen=True, slots=True)
class EdgeCohort(Cohort):
    """The clients that take part in a round, and where.

    Attributes:
        servers: Edge server of each chosen client.
    """

    servers: tuple[str, ...] = ()
