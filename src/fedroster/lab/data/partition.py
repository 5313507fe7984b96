r"""How samples are divided among clients.

By Dirichlet shares (Huang et al. 2021, section 6.2.1; Choice A9), by a few labels each (Qu et al. 2021, section VI-A),
or alike; and with labels that go with speed, as where slow clients hold data of their own.  Each division returns rows
of ``labels``, shape (clients, samples_per_client), and raises a ConfigurationError if a parameter is out of range, or
the data set, or a class of it, is smaller than a client's share.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.random import Generator

from fedroster.errors import ConfigurationError
from fedroster.parts import check_integer, check_number
from fedroster.types import FloatArray, IntArray


def class_proportions(gamma: float, num_classes: int, *, rng: Generator) -> FloatArray:
    r"""Draw :math:`q \sim \mathrm{Dir}(\gamma \mathbf 1)`, shape (classes,), for any gamma > 0.

    In logarithms, :math:`\log G_\gamma = \log G_{\gamma+1} + \log(U) / \gamma`: a tiny gamma leaves one class, not 0/0.
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
    """
    check_number("gamma_1", gamma_1, above=0.0)
    rows_of = [np.flatnonzero(labels == label) for label in range(num_classes)]
    limit = np.array([rows.shape[0] for rows in rows_of])
    _check(int(limit.sum()), num_clients, samples_per_client)
    partition = np.empty((num_clients, samples_per_client), np.int64)
    for client in range(num_clients):
        counts = largest_remainder(class_proportions(gamma_1, num_classes, rng=rng), samples_per_client, limit)
        chosen = [
            rng.choice(rows, size=count, replace=False) for rows, count in zip(rows_of, counts, strict=True) if count
        ]
        partition[client] = np.concatenate(chosen)
    return partition


def label_partition(
    labels: IntArray,
    *,
    num_clients: int,
    samples_per_client: int,
    num_classes: int,
    labels_per_client: int = 2,
    rng: Generator,
) -> IntArray:
    """Give each client samples of exactly ``labels_per_client`` labels (Qu et al. 2021, section VI-A: two).

    The paper does not say how the pair is drawn.  Here a client takes the labels that the fewest clients before it
    hold, ties broken at random.  So every set of labels is as likely as every other for a client, and the numbers of
    clients that hold a label differ by at most one: no label is missing where the clients are enough to hold all.  The
    samples of a client are divided equally among its labels, to one, and are drawn uniformly without replacement.  No
    two clients hold the same sample, as in the paper, where each label has samples enough; else each client draws from
    the whole data set.
    """
    _check(labels.shape[0], num_clients, samples_per_client)
    check_integer("labels_per_client", labels_per_client, least=1)
    if labels_per_client > min(num_classes, samples_per_client):
        raise ConfigurationError(
            f"labels_per_client is {labels_per_client}; expected at most num_classes = {num_classes} "
            f"and samples_per_client = {samples_per_client}"
        )
    rows_of = [rng.permutation(np.flatnonzero(labels == label)) for label in range(num_classes)]
    least = min(rows.shape[0] for rows in rows_of)
    share, rest = divmod(samples_per_client, labels_per_client)
    most = share + (rest > 0)  # samples of a label that a client holds
    if most > least:
        raise ConfigurationError(
            f"a label has {least} samples and a client would hold {most} of them; expected samples_per_client < "
            f"{samples_per_client}"
        )
    disjoint = math.ceil(num_clients * labels_per_client / num_classes) * most <= least
    holders = np.zeros(num_classes, np.int64)
    taken = np.zeros(num_classes, np.int64)
    partition = np.empty((num_clients, samples_per_client), np.int64)
    wanted = np.zeros((num_clients, num_classes), np.int64)
    for client in range(num_clients):
        chosen = np.lexsort((rng.random(num_classes), holders))[:labels_per_client]
        holders[chosen] += 1
        wanted[client, chosen] = share
        wanted[client, rng.permutation(chosen)[:rest]] += 1
    for client in range(num_clients):
        pieces = []
        for label, count in enumerate(wanted[client].tolist()):
            if disjoint:
                pieces.append(rows_of[label][taken[label] : taken[label] + count])
                taken[label] += count
            else:
                pieces.append(rng.choice(rows_of[label], size=count, replace=False))
        partition[client] = np.concatenate(pieces)
    return partition


def iid_partition(labels: IntArray, *, num_clients: int, samples_per_client: int, rng: Generator) -> IntArray:
    """Give each client samples that are drawn uniformly from the whole data set, without replacement.

    No two clients hold the same sample where the data set is large enough.
    """
    _check(labels.shape[0], num_clients, samples_per_client)
    if num_clients * samples_per_client <= labels.shape[0]:
        rows: IntArray = rng.permutation(labels.shape[0])[: num_clients * samples_per_client]
        return rows.reshape(num_clients, samples_per_client)
    return np.stack([rng.choice(labels.shape[0], size=samples_per_client, replace=False) for _ in range(num_clients)])


GROUPS = 4
"""Groups of clients of like speed, of which each has labels of its own where data is coupled with speed."""


def couple_with_speed(
    partition: IntArray, labels: IntArray, times_s: FloatArray, *, coupling: float, num_classes: int, rng: Generator
) -> IntArray:
    r"""Give each client a share of samples whose labels belong to clients of its speed.

    Clients are ranked by their usual times and cut into :data:`GROUPS` groups; label i of C belongs to group
    :math:`\lfloor G i / C \rfloor`.  A part of each client's samples is replaced by samples of its group's
    labels, drawn uniformly without replacement within a client; clients may hold the same sample.

    Args:
        partition: Rows of ``labels``, shape (clients, samples).
        labels: Classes of all samples, shape (n,).
        times_s: Usual time of each client, shape (clients,), seconds.
        coupling: Share of a client's samples that are replaced, in [0, 1].
        num_classes: C.
        rng: Draws the samples.

    Returns:
        Rows of ``labels``, shape (clients, samples).

    Raises:
        ConfigurationError: If there are fewer classes than groups, or a group has too few samples.
    """
    check_number("coupling", coupling, least=0.0, most=1.0)
    clients, samples = partition.shape
    rank = np.argsort(np.argsort(times_s, kind="stable"), kind="stable")
    rows_of = [np.flatnonzero(labels * GROUPS // num_classes == number) for number in range(GROUPS)]
    count, least = round(coupling * samples), min(rows.shape[0] for rows in rows_of)
    if count > least:
        raise ConfigurationError(f"a client would hold {count} samples of its group's labels, which have {least}")
    coupled = rng.permuted(partition, axis=1)  # what stays is drawn: rows may be in the order of their classes
    for client, group in enumerate(rank * GROUPS // clients):
        coupled[client, :count] = rng.choice(rows_of[group], size=count, replace=False)
    return coupled


def _check(num_samples: int, num_clients: int, samples_per_client: int) -> None:
    check_integer("num_clients", num_clients, least=1)
    check_integer("samples_per_client", samples_per_client, least=1)
    if num_samples < samples_per_client:
        raise ConfigurationError(
            f"the data set has {num_samples} samples; expected at least samples_per_client = {samples_per_client}"
        )


def class_counts(partition: IntArray, labels: IntArray, num_classes: int) -> IntArray:
    """How many samples of each class each client holds, shape (clients, classes); ``partition`` are rows of labels."""
    return np.stack([np.bincount(labels[rows], minlength=num_classes) for rows in partition])
