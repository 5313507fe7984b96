"""What a selector answers: the clients of a round."""

from __future__ import annotations

from dataclasses import dataclass

from fedroster.core.ids import ClientId


@dataclass(frozen=True, slots=True)
class Cohort:
    """The clients that take part in a round.

    Attributes:
        round: Round number; feedback refers to it.
        clients: Ids of the chosen clients.  Empty when no client was available.
    """

    round: int
    clients: tuple[ClientId, ...]

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
