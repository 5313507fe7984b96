"""The arithmetic of the updates as products of large matrices: about as fast as the machine computes."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.peers.worker import Round, Workload, serve
from fedroster.lab.training.models import MODELS

SIZE = 512  # of the matrices, in single precision


def flops_of(work: Workload) -> int:
    """Floating-point operations of a step with one batch, forward and backward."""
    model, rows = MODELS[work.model](), slice(work.batch_size)
    images, labels = torch.from_numpy(work.x[rows].copy()), torch.from_numpy(work.y[rows].copy())
    with FlopCounterMode(display=False) as counter:
        nn.functional.cross_entropy(model(images), labels).backward()
    return int(counter.get_total_flops())


def make(work: Workload) -> Round:
    samples = work.epochs * work.partition.shape[1]
    products = flops_of(work) / work.batch_size * samples / (2 * SIZE**3)  # of a client
    left, right, out = (torch.randn(SIZE, SIZE) for _ in range(3))

    def play(number: int, clients: list[int]) -> None:
        for _ in range(round(products * len(clients))):
            torch.mm(left, right, out=out)

    return play


if __name__ == "__main__":
    serve(make)
