"""plato: a client selection strategy that asks a selector, in synchronous and asynchronous servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from plato.servers.strategies.base import ClientSelectionStrategy

from fedroster import Selector


class SelectedClients(ClientSelectionStrategy):
    """``fedavg.Server(client_selection_strategy=SelectedClients(selector))``."""

    def __init__(self, selector: Selector) -> None:
        """Put a selector before the clients; its cohort size is ``clients_per_round``."""
        self.selector = selector
        self._round_of: dict[int, int] = {}

    def select_clients(self, clients_pool: list[int], clients_count: int, context: Any) -> list[int]:
        """As many clients as there are free places: an asynchronous server asks for less than a whole cohort."""
        self.selector.join(set(clients_pool).difference(self.selector.clients))
        cohort = self.selector.select(clients_pool, at_most=clients_count)
        self._round_of |= dict.fromkeys(cohort.clients, cohort.round)
        return list(cohort.clients)

    def on_reports_received(self, updates: list[SimpleNamespace], context: Any) -> None:
        """Learn how long each client took."""
        for update in updates:
            report = update.report
            time_s = report.training_time + getattr(report, "comm_time", 0.0)
            number = self._round_of.pop(update.client_id)
            self.selector.observe(number, times_s={update.client_id: time_s})
