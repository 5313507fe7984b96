r"""How samples are divided among clients (paper A, section 6.2.1; Choice A9)."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.checks import check_integer, check_number
from fedroster.core.errors import ConfigurationError, InvalidInputError


def class_proportions(gamma: float, num_classes: int, *, rng: Generator) -> FloatArray:
    r"""Draw :math:`q \sim \mathrm{Dir}(\gamma \mathbf 1)`, shape (classes,), for any gamma > 0.

    In logarithms, :math:`\log G_\gamma = \log G_{\gamma+1} + \log(U) / \gamma`: a tiny gamma leaves one class, not 0/0.

    Args:
        gamma: Concentration, > 0.
        num_classes: Number of classes.
        rng: Draws them.
    """
    large = np.log(rng.standard_gamma(gamma + 1.0, num_classes))
    scaled = min(gamma, 1.0) * large + np.log1p(-rng.random(num_classes)) / max(gamma, 1.0)
    with np.errstate(over="ignore"):  # divided last, when the maximum is off: a tiny gamma then leaves 0 and -inf
        weight = np.exp((scaled - scaled.max()) / min(gamma, 1.0))
    proportions: FloatArray = weight / weight.sum()
    return proportions


def largest_remainder(shares: FloatArray, total: int, limit: IntArray) -> IntArray:
    """Divide ``total`` in proportion to ``shares``, in whole numbers that never exceed ``limit``.

    What a full class cannot give is divided among the others, again in proportion, and equally when all shares are
    full.

    Args:
        shares: Shape (classes,), >= 0, with a positive sum.
        total: To be divided; at most the sum of ``limit``.
        limit: Shape (classes,).
    """
    counts = np.zeros(shares.shape[0], np.int64)
    while (rest := total - int(counts.sum())) > 0:
        open_ = counts < limit
        weight = np.where(open_, shares, 0.0)
        if weight.sum() == 0.0:
            weight = open_.astype(np.float64)
        exact = rest * weight / weight.sum()
        whole = np.floor(exact).astype(np.int64)
        short = rest - int(whole.sum())
        candidates = np.argsort(-(exact - whole) - np.where(open_, 0.0, -2.0), kind="stable")
        whole[candidates[:short]] += 1
        counts = np.minimum(counts + whole, limit)
    return counts


def dirichlet_partition(
    labels: IntArray, *, num_clients: int, samples_per_client: int, gamma_1: float, num_classes: int, rng: Generator
) -> IntArray:
    r"""Give each client a share :math:`q_i` of samples of class i, :math:`q \sim \mathrm{Dir}(\gamma_1 \mathbf 1)`.

    q is drawn once for each client.  Samples are drawn uniformly, without replacement within a client; different
    clients may hold the same sample, as in the paper.  Where a class has fewer samples than a client wants, the rest
    comes from the client's other classes in proportion.

    Args:
        labels: Class of each sample, shape (samples,).
        num_clients: N.
        samples_per_client: Samples of each client; 500 in the paper.
        gamma_1: Concentration: small for clients of one class, large for identical clients, > 0.
        num_classes: Number of classes.
        rng: Draws everything.

    Returns:
        Rows of ``labels``, shape (clients, samples_per_client).

    Raises:
        ConfigurationError: If the data set is smaller than a client's share, or a parameter is out of range.
        InvalidInputError: If a label is out of range.
    """
    check_integer("num_clients", num_clients, least=1)
    check_integer("samples_per_client", samples_per_client, least=1)
    check_number("gamma_1", gamma_1, above=0.0)
    if labels.shape[0] < samples_per_client:
        raise ConfigurationError(
            f"the data set has {labels.shape[0]} samples; expected at least samples_per_client = {samples_per_client}"
        )
    if labels.min() < 0 or labels.max() >= num_classes:
        row = int(np.flatnonzero((labels < 0) | (labels >= num_classes))[0])
        raise InvalidInputError(f"label of sample {row} is {int(labels[row])}; expected 0 <= label < {num_classes}")
    rows_of = [np.flatnonzero(labels == label) for label in range(num_classes)]
    limit = np.array([rows.shape[0] for rows in rows_of])
    partition = np.empty((num_clients, samples_per_client), np.int64)
    for client in range(num_clients):
        counts = largest_remainder(class_proportions(gamma_1, num_classes, rng=rng), samples_per_client, limit)
        chosen = [
            rng.choice(rows, size=count, replace=False) for rows, count in zip(rows_of, counts, strict=True) if count
        ]
        partition[client] = np.concatenate(chosen)
    return partition


def class_counts(partition: IntArray, labels: IntArray, num_classes: int) -> IntArray:
    """How many samples of each class each client holds, shape (clients, classes).

    Args:
        partition: Rows of ``labels``, shape (clients, samples).
        labels: Class of each sample, shape (samples,).
        num_classes: Number of classes.
    """
    return np.stack([np.bincount(labels[rows], minlength=num_classes) for rows in partition])
