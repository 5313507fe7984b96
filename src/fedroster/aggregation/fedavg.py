r"""Federated averaging (McMahan et al. 2017): the mean of the clients' models, weighted by their samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray, Model


@dataclass(frozen=True, slots=True)
class Aggregate:
    """The next model.

    Attributes:
        parameters: Global parameters by name; the old ones when no update could be used.
        used: Which updates went into it, shape (k,).
    """

    parameters: Model
    used: BoolArray


def finite_updates(stacked: Model, num_clients: int) -> BoolArray:
    """Which updates hold only finite numbers, shape (k,)."""
    finite = np.ones(num_clients, np.bool_)
    for values in stacked.values():
        finite &= np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    return finite


def weighted_sum(stacked: Model, weights: FloatArray) -> Model:
    """Sum of weight times row of every array, in double precision: the order of the clients then hardly matters.

    Args:
        stacked: Updates, shape (k, ...) by name.
        weights: Shape (k,).
    """
    return {name: np.tensordot(weights, values.astype(np.float64), axes=1) for name, values in stacked.items()}


def federated_average(
    current: Model, stacked: Model, num_samples: IntArray | FloatArray, *, arrived: BoolArray
) -> Aggregate:
    r"""One step of FedAvg, :math:`w \gets \sum_{k \in A} n_k w_k / \sum_{k \in A} n_k`.

    A holds the clients whose update arrived and is finite; an update that is not finite is refused.  When A is empty
    the model stays as it is.  ``stacked`` holds the clients' parameters, shape (k, ...) by name.
    """
    used = arrived & finite_updates(stacked, num_samples.shape[0])
    if not used.any():
        return Aggregate(parameters=current, used=used)
    weight = num_samples[used] / num_samples[used].sum()
    averaged = weighted_sum({name: values[used] for name, values in stacked.items()}, weight)
    return Aggregate({name: values.astype(stacked[name].dtype) for name, values in averaged.items()}, used)
