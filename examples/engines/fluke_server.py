"""fluke 0.8: a server whose clients a selector chooses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from fluke.client import Client
from fluke.server import Server

from fedroster import Selector


class SelectingServer(Server):
    """The ``get_server_class`` of an algorithm; set ``selector`` on the server before it runs."""

    selector: Selector

    def get_eligible_clients(self, eligible_perc: float) -> Sequence[Client]:
        """Clients that the policy chooses; its cohort size stands in for ``eligible_perc``."""
        here = {client.index: client for client in self.clients}
        for client in (here[index] for index in set(here).difference(self.selector.clients)):
            self.selector.join([client.index])
            client.attach(self)  # it tells when it begins and ends to train
        self.cohort, self.times_s = self.selector.select(), {}
        return [here[index] for index in self.cohort.clients]

    def start_fit(self, client_id: int, **_: Any) -> None:
        """A client begins."""
        self.times_s[client_id] = -time.monotonic()

    def end_fit(self, client_id: int, **_: Any) -> None:
        """A client has trained."""
        self.times_s[client_id] += time.monotonic()

    def aggregate(self, eligible: Sequence[Client], client_models: Any) -> None:
        """Learn the times: fluke trains one client after the other."""
        self.selector.observe(self.cohort.round, times_s=self.times_s)
        super().aggregate(eligible, client_models)
