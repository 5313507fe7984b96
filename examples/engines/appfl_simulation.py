"""APPFL 1.12: its synchronous simulation, whose cohorts a selector chooses and whose virtual clock it learns from."""

from __future__ import annotations

from typing import Any

from appfl.vsim import SyncSimDriver

from fedroster import Selector


class SelectingDriver(SyncSimDriver):
    """``SyncSimDriver(...)`` with a selector; its cohort size stands in for ``participants_per_round``."""

    def __init__(self, *given: Any, selector: Selector, **named: Any) -> None:
        """Put a selector before the clients, which join by themselves."""
        super().__init__(*given, participants_per_round=selector.cohort_size, **named)
        self.selector = selector

    def _select_participants(self) -> list[str]:
        """Clients that the policy chooses."""
        self.selector.join(set(self.clients).difference(self.selector.clients))
        self.cohort = self.selector.select()
        return list(self.cohort.clients)

    def _apply_barrier(self, completions: list[dict[str, Any]], t_start: float) -> Any:
        """Learn how long each client took, those that the round did not wait for too."""
        accepted, discarded, t_barrier = super()._apply_barrier(completions, t_start)
        times_s = {each["cid"]: each["duration"] for each in completions}
        late = [each["cid"] for each in discarded]
        # No round_s: the simulation knows how long late clients take before a server's clock could.
        self.selector.observe(self.cohort.round, times_s=times_s, late=late)
        return accepted, discarded, t_barrier
