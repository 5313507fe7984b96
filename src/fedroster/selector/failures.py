"""What becomes of clients that fail or stay silent."""

from __future__ import annotations

from dataclasses import dataclass

from fedroster.core.parameters import Count, Natural, Parameters


@dataclass(frozen=True, slots=True)
class FailureRules(Parameters):
    """What happens to clients that drop out or fail.

    Attributes:
        learned: Whether a failure is learned as an exchange that took as long as its round.
        pause_after: A client that fails this many times in a row pauses: it is not chosen, and is owed nothing for it;
            0 for never.
        longest_pause: Most rounds of a pause, >= 1.  The first pause lasts a round, and each further failure doubles
            the next.
    """

    learned: bool = True
    pause_after: Natural = 3
    longest_pause: Count = 50
