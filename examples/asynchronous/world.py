"""A simulated network on a virtual clock, and sums of models."""

import dataclasses
from collections import deque

import numpy as np

from fedroster.lab.training.protocol import Updates
from fedroster.types import AnyEnvironment, Outcome, Streams


class World:
    """A scenario of the catalogue, looked at whenever a place is free.

    A client is warm if it was among the last m that began to work.
    """

    def __init__(self, network: AnyEnvironment, *, seed: int) -> None:
        """Begin at time 0."""
        self._network, self._streams = network, Streams(seed)
        self._state = network.init(rng=self._streams.at("environment-init"))
        self._start_s = getattr(self._state, "time_s", 0.0)
        self._warm: deque[int] = deque(maxlen=network.spec.cohort_size)
        self.clients = range(network.spec.num_clients)
        self.idle_s = float(getattr(network, "idle_step_s", 1.0))

    def look(self, number: int, now_s: float) -> tuple[dict[int, np.ndarray], Outcome]:
        """Contexts of the clients that are available now, and what would happen with each client."""
        cold = np.ones(len(self.clients), np.bool_)
        cold[list(self._warm)] = False
        changes = {"cold": cold} | ({"time_s": self._start_s + now_s} if hasattr(self._state, "time_s") else {})
        state = dataclasses.replace(self._state, **changes)
        context, outcome = self._network.observe(state, number, rng=self._streams.at("environment", number))
        return {int(client): context.features[client] for client in np.flatnonzero(context.available)}, outcome

    def begin(self, clients: tuple[int, ...]) -> None:
        """Some clients begin to work."""
        self._warm.extend(clients)


def difference(models: dict, base: dict) -> dict:
    """How far the model of one client has moved."""
    return {name: values[0] - base[name] for name, values in models.items()}


def added(base: dict, updates: list[tuple[float, dict]]) -> dict:
    """A model moved by the mean of weighted updates."""
    return {
        name: values + sum(weight * update[name] for weight, update in updates) / len(updates)
        for name, values in base.items()
    }


def measured(clients: list[int], updates: Updates) -> dict:
    """What the clients measured, as ``Selector.observe`` takes it; nothing if the trainer measures no losses."""
    if np.isnan(updates.loss_before).any() or updates.squared_loss is None:
        return {}
    names = {"losses": updates.loss_before, "squared_losses": updates.squared_loss, "num_samples": updates.num_samples}
    return {name: dict(zip(clients, map(float, values), strict=True)) for name, values in names.items()}
