"""Flower's simulation: two clients at the same time, one core and one thread of torch each, weighted FedAvg."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from flwr.client import ClientApp  # type: ignore[import-not-found,unused-ignore]
from flwr.common import Context, FitIns, ndarrays_to_parameters  # type: ignore[import-not-found,unused-ignore]
from flwr.server import ServerApp, ServerAppComponents, ServerConfig  # type: ignore[import-not-found,unused-ignore]
from flwr.server.strategy import FedAvg  # type: ignore[import-not-found,unused-ignore]
from flwr.simulation import run_simulation  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers.flower_client import Client
from benchmarks.peers.worker import Workload, serve_inside
from fedroster.lab.training.models import MODELS


class Asked(FedAvg):  # type: ignore[misc,unused-ignore]
    """FedAvg of the clients that are asked for."""

    def __init__(self, asked: Iterator[tuple[int, list[int]]], **settings: Any) -> None:
        """As FedAvg, with the rounds that are asked for."""
        super().__init__(fraction_evaluate=0.0, **settings)
        self.asked = asked

    def configure_fit(self, server_round: int, parameters: Any, client_manager: Any) -> Any:
        """Send the model to the clients of the next round."""
        number_and_clients = next(self.asked, None)
        if number_and_clients is None:
            raise SystemExit
        nodes = list(client_manager.all().values())
        return [
            (node, FitIns(parameters, {"client": client}))
            for node, client in zip(itertools.cycle(nodes), number_and_clients[1], strict=False)
        ]


def start(work: Workload, asked: Iterator[tuple[int, list[int]]]) -> None:
    folder = str(work.folder)
    torch.manual_seed(0)
    first = [parameter.detach().numpy() for parameter in MODELS[work.model]().parameters()]

    def server(context: Context) -> ServerAppComponents:
        strategy = Asked(asked, initial_parameters=ndarrays_to_parameters(first), min_available_clients=1)
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=100_000))

    def client(context: Context) -> Any:
        return Client(folder).to_client()

    run_simulation(
        ServerApp(server_fn=server),
        ClientApp(client_fn=client),
        num_supernodes=len(work.partition),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    serve_inside(start)
