r"""Edge and global aggregation of Qu et al. 2021, section III-A and C, and how long they take.

Edge models are stacked: the first axis of every array has one entry for each server.  The first axis of clients' arrays
has one entry for each chosen client, in the order of the decision.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedroster.aggregation.fedavg import finite_updates
from fedroster.core.arrays import BoolArray, FloatArray, IntArray, Model
from fedroster.core.problem import Outcome, RoundContext, Selection


@dataclass(frozen=True, slots=True)
class EdgeDeadline:
    r"""Which updates every server uses, and when it stops waiting (6).

    Attributes:
        used: Whether each chosen client's update is used, shape (k,).
        closed_s: When each server stops waiting, shape (servers,), seconds; 0 for one without a client.
    """

    used: BoolArray
    closed_s: FloatArray


def edge_answers(outcome: Outcome, context: RoundContext, selection: Selection) -> EdgeDeadline:
    r"""Apply the deadline to the chosen links, and wait beyond it for at least Z updates (Qu et al. 2021, Eq. 6).

    .. math:: \{n : \tau_n \le \tau_{dead}\} \ \text{if these are at least } Z,\qquad
        \{n : \tau_n \le \tau^Z\} \ \text{else},

    where :math:`\tau^Z` is the time of the server's Z-th fastest client.  A server stops waiting when all its clients
    have answered, at the deadline, or at :math:`\tau^Z` when that is later.  With fewer than Z answers in all it uses
    what there is: it waits for the last of them, and at least until the deadline, since it cannot know
    which clients will never answer.
    """
    links, deadline_s = selection.links, outcome.deadline_s
    time_s, responds = outcome.exchange_time_s[links], outcome.responds[links]
    server = np.zeros(links.shape[0], np.int64) if context.server is None else context.server[links]
    closed_s = np.zeros(int(server.max(initial=0)) + 1)
    for m in np.unique(server):
        mine = server == m
        answers = np.sort(time_s[mine & responds])
        in_time = int(np.count_nonzero(answers <= deadline_s))
        wanted = min(max(in_time, outcome.min_updates), answers.shape[0])
        # Without a deadline, a silent client is noticed when the last answer has arrived.
        is_last = wanted > in_time or in_time == np.count_nonzero(mine) or np.isinf(deadline_s)
        closed_s[m] = answers[:wanted].max(initial=0.0) if is_last else deadline_s
    return EdgeDeadline(used=responds & (time_s <= np.maximum(closed_s, deadline_s)[server]), closed_s=closed_s)


def aggregate_edges(edges: Model, models: Model, server: IntArray, used: BoolArray) -> Model:
    r"""Edge aggregation: every server's mean of the models it uses (Qu et al. 2021, Eq. 3 and 6).

    .. math:: w_m \gets \frac{1}{|A_m|} \sum_{n \in A_m} w_n \;=\; w_m + \frac{1}{|A_m|} \sum_{n \in A_m} \Delta_n,
        \qquad \Delta_n = w_n - w_m

    Updates that are not finite are refused.  A server without an update keeps its model.  Clients count alike, whatever
    their samples, as the paper has it.
    """
    good = used & finite_updates(models, server.shape[0])
    following = {}
    for name, edge in edges.items():
        following[name] = edge.copy()
        for m in np.unique(server[good]):
            # In double precision: the order of the clients then hardly matters.
            following[name][m] = models[name][good & (server == m)].mean(axis=0, dtype=np.float64)
    return following


def aggregate_globally(edges: Model) -> Model:
    r"""Global aggregation, :math:`w \gets \frac1M \sum_m w_m` (Qu et al. 2021, section III-A (iv))."""
    return {name: values.mean(axis=0, dtype=np.float64).astype(values.dtype) for name, values in edges.items()}


def broadcast(model: Model, num_servers: int) -> Model:
    """Give every server the global model, shape (servers, ...) by name."""
    return {name: np.repeat(values[None], num_servers, axis=0) for name, values in model.items()}


def hierarchical_round_time(outcome: Outcome, context: RoundContext, selection: Selection) -> float:
    r"""Time span of a round: the last server's waiting, edge aggregation and, every T_ES rounds, the cloud's.

    .. math:: \max_m \tau_m + \tau_{EC} + [t \bmod T_{ES} = 0]\, \tau_{cloud}

    Servers work side by side.  An empty round takes no time, but the cloud's.
    """
    cloud_s = outcome.cloud_time_s if outcome.global_round else 0.0
    if selection.is_empty:
        return cloud_s
    waited_s = float(edge_answers(outcome, context, selection).closed_s.max())
    return waited_s + outcome.edge_time_s + cloud_s
