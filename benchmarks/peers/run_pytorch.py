"""The plain PyTorch loop; ``channels-last`` as second argument keeps images and weights with their channels last."""

from __future__ import annotations

import sys

import torch
from torch import nn

from benchmarks.peers.worker import Round, Workload, serve
from fedroster.lab.training.models import MODELS


def make(work: Workload) -> Round:
    layout = torch.channels_last if "channels-last" in sys.argv else torch.contiguous_format
    images = torch.from_numpy(work.x[:]).contiguous(memory_format=layout)
    if "channels-last" in sys.argv:  # strides of a single channel are ambiguous: these are unambiguous
        images = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    labels, partition = torch.from_numpy(work.y[:]), torch.from_numpy(work.partition)
    torch.manual_seed(0)
    model = MODELS[work.model]()
    for parameter in model.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)
    state = {name: value.clone() for name, value in model.state_dict().items()}

    def play(number: int, clients: list[int]) -> None:
        total = {name: torch.zeros_like(value) for name, value in state.items()}
        for client in clients:
            model.load_state_dict(state)
            optimizer = torch.optim.SGD(model.parameters(), lr=work.learning_rate)
            held = partition[client]
            for _ in range(work.epochs):
                for batch in held[torch.randperm(held.shape[0])].split(work.batch_size):
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
                    optimizer.step()
            for name, value in model.state_dict().items():
                total[name] += value
        for name, value in total.items():
            state[name] = value / len(clients)

    return play


if __name__ == "__main__":
    serve(make)
