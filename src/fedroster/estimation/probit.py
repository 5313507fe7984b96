r"""Success probabilities of links from their contexts: probit regression with partial pooling, averaged over models.

Whether the update of client n through server m comes in time, under the context :math:`\phi`, is

.. math:: P(X = 1) = \Phi(\eta),\qquad \eta = f(\phi) + a_n + b_m + e_{n,m}.

The curve f is common to all links, so that what is learned on one holds for all, cold ones too.  The deviations of a
client, a server and a pair are normal with mean 0: data moves them, lack of data leaves them where the others are
(*partial pooling*, Gelman and Hill 2007).  docs/explanation/partial-pooling.md derives what follows.

**The curve.**  A feature's values become ranks in [0, 1]: its quantiles in the first contexts are the knots.  Over
ranks, :math:`f(\phi) = w_0 + \sum_i f_i(\phi_i) + \sum_{i<j} f_{ij}(\phi_i, \phi_j)` with piecewise linear functions,
whose values at the nodes have an Ornstein-Uhlenbeck prior: near nodes have near values, and no shape is ruled out.

**Learning.**  After each observation the posterior is replaced by the normal distribution of the same moments
(assumed-density filtering; Graepel et al., ICML 2010).  With :math:`y = \pm 1`, m and v the mean and variance of
:math:`\eta`, :math:`z = y m / \sqrt{1 + v}`, :math:`\lambda = \varphi(z) / \Phi(z)` and c the covariance of a part of
:math:`\eta` with :math:`\eta`,

.. math:: \mu \gets \mu + y\, c\, \frac{\lambda}{\sqrt{1+v}},\qquad
    \Sigma \gets \Sigma - c c^\top \frac{\lambda (\lambda + z)}{1+v},\qquad P(X = 1) = \Phi\bigl(m / \sqrt{1+v}\bigr).

Covariances between the curve and the deviations, and among deviations, are dropped.  This depends on the order of
observations, and feedback comes in any; so what comes during a round is kept, sorted, until the next one begins.

**How much to pool.**  Several models run side by side: the k-th has deviations of variance :math:`s_k^2` that are
forgotten within :math:`\tau_k` rounds, and forgets its curve ten times as slowly.  Each is weighted by the probability
that it gave to what was observed before it learned from it.  Every round a share :math:`\alpha` of the weight is spread
evenly, so that another model may take over (Herbster and Warmuth 1998): on any stretch of R rounds the mixture loses to
the best of K models at most :math:`\log(K / \alpha) - (R-1)\log(1 - \alpha)` in log loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.checks import check_integer, check_number
from fedroster.core.compiled import njit
from fedroster.core.errors import ConfigurationError
from fedroster.core.parallel import for_ranges
from fedroster.core.state import kept, per_client
from fedroster.estimation.slots import EMPTY, FIRST_SLOTS, FULLEST, roomier, slot_of

_INTERCEPT, _MAIN, _INTERACTION = 1.0, 4.0, 1.0
"""Prior variances of the parts of the curve; 1 makes a probability uniform, 4 lets one feature decide alone."""
_COARSE = 4  # intervals on each axis of an interaction
_MOST_WEIGHTS = 256  # of the curve; beyond it interactions are left out
_SAMPLE, _FEWEST = 256, 64  # contexts that the knots are taken from, at most and at least
_CURVE_MEMORY = 10.0  # a curve is remembered this many times as long as deviations
_NEGLIGIBLE = 1e-3  # weight below which a model is not asked
_LARGEST = 1e300  # a feature beyond it counts as it for the knots, whose differences must not overflow
_LARGEST_KEY = 2**62


@dataclass(frozen=True, slots=True)
class ProbitState:
    """The estimates for every link, by each of K models; d weights make the curve.

    Memory: O(K d^2), 16 K bytes a client, and for each pair that was observed a slot of 16 + 16 K bytes.

    Attributes:
        round: Last round that was begun.
        num_tags: Tags that were given.
        num_pairs: Slots in use.
        sample: Contexts that the knots will be taken from, shape (at most 64, D); empty once they are.
        knot: Knots of each feature, ascending, shape (D, intervals + 1).
        num_knots: How many of them count, shape (D,); 0 before they are known.
        log_weight: Logarithm of the models' weights, up to a constant, shape (K,).
        variance: Prior variance of every deviation, s^2, shape (K,).
        decay: Share of a deviation that is left after a round, shape (K,); 1 for lasting ones.
        mean: Of the curve's weights, shape (K, d).
        covariance: Of the curve's weights, shape (K, d, d).
        server_mean: Of the servers' deviations, shape (K, servers).
        server_variance: Likewise.
        key: tag M + server of each slot, shape (slots,), a power of two; -1 for an empty slot.
        pair_round: Round up to which each slot is faded, shape (slots,).
        pair_mean: Of the pairs' deviations, shape (slots, K).
        pair_variance: Likewise.
        new_round: Rounds of the observations since the last round began, in the order in which they are learned from:
            by round, tag and server, shape (new,).
        new_tag: Tags of their clients, shape (new,).
        new_server: Their servers, shape (new,).
        new_features: Their contexts, shape (new, D).
        new_success: Whether each was in time, shape (new,).
        client_mean: Of the clients' deviations, shape (K, clients).
        client_variance: Likewise.
        tag: Tag of each client, shape (clients,); -1 before its first selection.  One that is forgotten is a stranger.
    """

    round: int = kept(0, "round")
    num_tags: int = kept(0)
    num_pairs: int = kept(0)
    sample: FloatArray = kept(-_LARGEST, _LARGEST, sized=True)
    knot: FloatArray = kept(-_LARGEST, _LARGEST)
    num_knots: IntArray = kept(0)
    log_weight: FloatArray = kept(-math.inf)
    variance: FloatArray = kept(fixed=True)
    decay: FloatArray = kept(fixed=True)
    mean: FloatArray = kept(-1e6, 1e6)
    covariance: FloatArray = kept(-math.inf)
    server_mean: FloatArray = kept(-1e6, 1e6)
    server_variance: FloatArray = kept(0.0)
    key: IntArray = kept(-1, 2**62, sized=True)
    pair_round: IntArray = kept(0, "round", sized=True)
    pair_mean: FloatArray = kept(-1e6, 1e6, sized=True)
    pair_variance: FloatArray = kept(0.0, sized=True)
    new_round: IntArray = kept(1, "round", sized=True)
    new_tag: IntArray = kept(0, sized=True)
    new_server: IntArray = kept(0, sized=True)
    new_features: FloatArray = kept(-math.inf, sized=True)
    new_success: BoolArray = kept(0, sized=True)
    client_mean: FloatArray = per_client(least=-1e6, most=1e6)
    client_variance: FloatArray = per_client(least=0.0)
    tag: IntArray = per_client(least=-1)

    @property
    def weight(self) -> FloatArray:
        """Weight of each model before the new observations, shape (K,), sum 1."""
        relative = _each(math.exp, self.log_weight - self.log_weight.max())
        weight: FloatArray = relative / relative.sum()
        return weight

    @property
    def axes(self) -> tuple[FloatArray, IntArray, int, bool]:
        """Knots, how many count, intervals, and whether features interact, as kernels take them."""
        num_features, intervals = self.knot.shape[0], self.knot.shape[1] - 1
        return self.knot, self.num_knots, intervals, _interacts(num_features, intervals)

    @property
    def parts(self) -> tuple[tuple[FloatArray, FloatArray], ...]:
        """Means and variances of the servers' and of the clients' deviations."""
        return (self.server_mean, self.server_variance), (self.client_mean, self.client_variance)

    @property
    def pairs(self) -> tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]:
        """The table of pairs, as kernels take it."""
        return self.tag, self.key, self.pair_round, self.pair_mean, self.pair_variance


def _interacts(num_features: int, intervals: int) -> bool:
    pairs = num_features * (num_features - 1) // 2
    size = 1 + num_features * (intervals + 1) + pairs * (_COARSE + 1) ** 2
    return intervals > 1 and pairs > 0 and size <= _MOST_WEIGHTS


def _each(function: Callable[[float], float], values: FloatArray) -> FloatArray:
    """A function of each value by the C library: NumPy's own exp, log and powers differ from processor to processor."""
    return np.array([function(value) for value in values.ravel().tolist()]).reshape(values.shape)


@lru_cache(maxsize=8)
def prior_covariance(num_features: int, intervals: int) -> FloatArray:
    r"""Prior covariance of the curve's weights, shape (d, d); shared, not to be written to.

    Blocks :math:`\sigma^2 e^{-|r - r'|}` over the nodes' ranks, products of these for interactions; 1 interval stands
    for straight lines without interactions, 0 for no curve.
    """

    def near(parts: int) -> FloatArray:
        rank = np.arange(parts + 1) / parts
        return _each(math.exp, -np.abs(rank[:, None] - rank))

    blocks = [np.full((1, 1), _INTERCEPT)]
    if intervals:
        blocks += [_MAIN * near(intervals)] * num_features
    if _interacts(num_features, intervals):
        axis = near(_COARSE)
        blocks += [_INTERACTION * np.kron(axis, axis)] * (num_features * (num_features - 1) // 2)
    size = sum(block.shape[0] for block in blocks)
    covariance = np.zeros((size, size))
    start = 0
    for block in blocks:
        stop = start + block.shape[0]
        covariance[start:stop, start:stop] = block
        start = stop
    covariance.flags.writeable = False
    return covariance


def probit_init(
    num_clients: int,
    num_servers: int,
    num_features: int,
    *,
    intervals: int,
    variance: tuple[float, ...],
    memory: tuple[float, ...],
) -> ProbitState:
    """Before the first round: every probability is one half.

    ``intervals`` on each axis of the curve are 1 for straight lines, 0 for no curve.  Each of K models has a variance
    s^2 of deviations, and rounds of memory after which a deviation is forgotten by all but a share 1/e, infinite for
    never.
    """
    check_integer("intervals", intervals, least=0)
    if not variance or len(variance) != len(memory):
        raise ConfigurationError(
            f"variance and memory have {len(variance)} and {len(memory)} entries; expected one each for every model"
        )
    for each in variance:
        check_number("variance", each, least=0.0)
    if not all(each > 0.0 for each in memory):
        raise ConfigurationError(f"memory is {memory}; expected numbers of rounds > 0, infinite for no forgetting")
    if num_clients * num_servers >= _LARGEST_KEY:
        raise ConfigurationError(f"{num_clients} clients and {num_servers} servers make 2^62 pairs; expected fewer")
    prior = prior_covariance(num_features, intervals)
    models = len(variance)
    own = np.array(variance, np.float64)
    return ProbitState(
        round=0,
        num_tags=0,
        num_pairs=0,
        sample=np.zeros((0, num_features)),
        knot=np.zeros((num_features, intervals + 1)),
        num_knots=np.zeros(num_features, np.int64),
        log_weight=np.zeros(models),
        variance=own,
        decay=_each(math.exp, -1.0 / np.array(memory, np.float64)),
        mean=np.zeros((models, prior.shape[0])),
        covariance=np.repeat(prior[None], models, axis=0),
        server_mean=np.zeros((models, num_servers)),
        server_variance=np.repeat(own[:, None], num_servers, axis=1),
        key=np.full(FIRST_SLOTS, EMPTY, np.int64),
        pair_round=np.zeros(FIRST_SLOTS, np.int64),
        pair_mean=np.zeros((FIRST_SLOTS, models)),
        pair_variance=np.zeros((FIRST_SLOTS, models)),
        **_nothing_new(num_features),
        client_mean=np.zeros((models, num_clients)),
        client_variance=np.repeat(own[:, None], num_clients, axis=1),
        tag=np.full(num_clients, -1, np.int64),
    )


def _nothing_new(num_features: int) -> dict[str, Any]:
    return {
        "new_round": np.zeros(0, np.int64),
        "new_tag": np.zeros(0, np.int64),
        "new_server": np.zeros(0, np.int64),
        "new_features": np.zeros((0, num_features)),
        "new_success": np.zeros(0, np.bool_),
    }


@njit(cache=True, nogil=True)
def _normal_tail(z):
    """Logarithm of Phi(z), and the ratio of density to it, for any z."""
    if z > -12.0:
        mass = 0.5 * math.erfc(-z / math.sqrt(2.0))
        return math.log(mass), math.exp(-0.5 * z * z) / (math.sqrt(2.0 * math.pi) * mass)
    inverse = 1.0 / (z * z)  # the asymptotic series of Mills' ratio
    series = 1.0 - inverse * (1.0 - 3.0 * inverse * (1.0 - 5.0 * inverse))
    return -0.5 * z * z + math.log(series) - math.log(-z * math.sqrt(2.0 * math.pi)), -z / series


@njit(cache=True, nogil=True)
def _nodes(feature, axes, index, share, rank):
    """Nodes of the curve next to a context and their shares in f there; returns how many."""
    knot, num_knots, intervals, interacts = axes
    index[0], share[0] = 0, 1.0
    count = 1
    num_features = feature.shape[0]
    if intervals == 0 or num_knots[0] == 0:
        return count
    for i in range(num_features):
        last = num_knots[i] - 1
        x = feature[i]
        if last == 0 or x <= knot[i, 0]:
            rank[i] = 0.0
        elif x >= knot[i, last]:
            rank[i] = 1.0
        else:
            low, high = 0, last
            while high - low > 1:
                middle = (low + high) // 2
                if knot[i, middle] <= x:
                    low = middle
                else:
                    high = middle
            rank[i] = (low + (x - knot[i, low]) / (knot[i, high] - knot[i, low])) / last
        place = rank[i] * intervals
        left = min(int(place), intervals - 1)
        first = 1 + i * (intervals + 1) + left
        index[count], share[count] = first, left + 1 - place
        index[count + 1], share[count + 1] = first + 1, place - left
        count += 2
    if interacts:
        first = 1 + num_features * (intervals + 1)
        for i in range(num_features):
            place_i = rank[i] * _COARSE
            left_i = min(int(place_i), _COARSE - 1)
            for j in range(i + 1, num_features):
                place_j = rank[j] * _COARSE
                left_j = min(int(place_j), _COARSE - 1)
                for a in range(2):
                    share_i = place_i - left_i if a else left_i + 1 - place_i
                    for b in range(2):
                        share_j = place_j - left_j if b else left_j + 1 - place_j
                        index[count] = first + (left_i + a) * (_COARSE + 1) + left_j + b
                        share[count] = share_i * share_j
                        count += 1
                first += (_COARSE + 1) * (_COARSE + 1)
    return count


@njit(cache=True, nogil=True)
def _predict_kernel(links, axes, models, parts, pairs, asked, weight, round_, probability, start, stop):
    feature, client, server = links
    variance, decay, mean, covariance = models
    (server_mean, server_variance), (client_mean, client_variance) = parts
    tag, key, pair_round, pair_mean, pair_variance = pairs
    most = 1 + 2 * feature.shape[1] + 2 * feature.shape[1] * (feature.shape[1] - 1)
    index, share = np.empty(most, np.int64), np.empty(most)
    rank = np.empty(feature.shape[1])
    num_servers, num_models = server_mean.shape[1], weight.shape[0]
    m, v = np.zeros(mean.shape[1]), np.zeros(mean.shape[1])
    for row in range(start, stop):
        n, s = client[row], server[row]
        count = _nodes(feature[row], axes, index, share, rank)
        slot, seen = 0, False
        if tag[n] >= 0:
            slot = slot_of(key, tag[n] * num_servers + s)
            seen = key[slot] != EMPTY
        for k in range(num_models):
            m[k], v[k] = client_mean[k, n] + server_mean[k, s], client_variance[k, n] + server_variance[k, s]
            if seen and variance[k] > 0.0:
                left = decay[k] ** (round_ - pair_round[slot])
                m[k] += left * pair_mean[slot, asked[k]]
                v[k] += variance[k] + left * left * (pair_variance[slot, asked[k]] - variance[k])
            else:
                v[k] += variance[k]
        for a in range(count):
            i = index[a]
            for k in range(num_models):
                m[k] += share[a] * mean[i, k]
                v[k] += share[a] * share[a] * covariance[i, i, k]
            for b in range(a):
                product = 2.0 * share[a] * share[b]
                for k in range(num_models):
                    v[k] += product * covariance[i, index[b], k]
        total = 0.0
        for k in range(num_models):
            total += weight[k] * 0.5 * math.erfc(-m[k] / math.sqrt(2.0 * (1.0 + max(v[k], 0.0))))
        probability[row] = min(total, 1.0)


def _servers(server: IntArray | None, num_links: int) -> IntArray:
    return np.zeros(num_links, np.int64) if server is None else server


def predict(
    state: ProbitState, client: IntArray, server: IntArray | None, features: FloatArray, *, round: int
) -> FloatArray:
    r"""Probability of an update in time in a round, :math:`\sum_k w_k \Phi(m_k / \sqrt{1 + v_k})`, shape (links,)."""
    state = settle(state)
    num_links = client.shape[0]
    probability = np.empty(num_links)
    weight = state.weight
    least = min(_NEGLIGIBLE, weight.max())  # a thousand models and more may all weigh less
    weight[weight < least] = 0.0
    asked = np.flatnonzero(weight)
    weight = (weight / weight.sum())[asked]
    variance, decay = state.variance[asked], state.decay[asked]
    faded = _each(lambda each: each ** (round - state.round), decay)[:, None]
    links = (np.ascontiguousarray(features), client, _servers(server, num_links))
    curve = (np.ascontiguousarray(np.moveaxis(each[asked], 0, -1)) for each in (state.mean, state.covariance))
    parts = tuple(
        (mean[asked] * faded, _spread(spread[asked], variance[:, None], faded)) for mean, spread in state.parts
    )
    known = (links, state.axes, (variance, decay, *curve), parts, state.pairs, asked, weight)
    for_ranges(_predict_kernel, num_links, *known, round, probability)
    return probability


def _spread(variance: FloatArray, prior: FloatArray, left: FloatArray) -> FloatArray:
    """Variance of what has faded to the share ``left``: on its way back to the prior's."""
    spread: FloatArray = prior + left**2 * (variance - prior)
    return spread


def begin_round(state: ProbitState, client: IntArray, contexts: FloatArray, *, round: int, share: float) -> ProbitState:
    """Book a round's decision: learn from what came, let a round pass, tag the cohort, set the knots in time.

    The contexts are those of the links that could be used; so large a share of the weights is spread evenly.
    """
    state = _settle(state)
    num_tags = state.num_tags
    fresh = client[state.tag[client] < 0]
    state.tag[fresh] = num_tags + np.arange(fresh.shape[0])
    passed = max(round - state.round, 0)
    left = _each(lambda each: each**passed, state.decay)
    for mean, variance in state.parts:
        for k in np.flatnonzero(left < 1.0):
            mean[k] *= left[k]
            variance[k] = _spread(variance[k], state.variance[k], left[k])
    prior = prior_covariance(state.knot.shape[0], state.knot.shape[1] - 1)
    for k in np.flatnonzero(left < 1.0):
        kept = left[k] ** (1.0 / _CURVE_MEMORY)
        state.mean[k] *= kept
        state.covariance[k] = _spread(state.covariance[k], prior, np.array(kept))
    weight = (1.0 - share) * state.weight + share / state.log_weight.shape[0]
    state.log_weight[:] = _each(math.log, np.maximum(weight, 1e-300))
    state = replace(state, round=max(round, state.round), num_tags=num_tags + int(fresh.shape[0]))
    return _with_knots(state, contexts)


def _with_knots(state: ProbitState, contexts: FloatArray) -> ProbitState:
    """Gather contexts; once there are enough, each feature's knots are its quantiles, without repetition.

    A feature with one value only has one knot, and waits for contexts in which it varies.
    """
    waiting = np.flatnonzero(state.num_knots < min(2, state.knot.shape[1]))
    if not waiting.shape[0] or not contexts.shape[0]:
        return state
    if state.num_knots.any() and not state.sample.shape[0] and (contexts[:, waiting] == state.knot[waiting, 0]).all():
        return state
    rows = np.unique(np.linspace(0, contexts.shape[0] - 1, _SAMPLE).astype(np.int64))
    sample = np.concatenate((state.sample, np.clip(contexts[rows], -_LARGEST, _LARGEST)))
    if sample.shape[0] < _FEWEST:
        return replace(state, sample=sample)
    share = np.linspace(0.0, 1.0, state.knot.shape[1])
    for i in waiting:
        knot = np.unique(np.quantile(sample[:, i], share))
        state.knot[i, : knot.shape[0]] = knot
        state.num_knots[i] = knot.shape[0]
    return replace(state, sample=np.zeros((0, sample.shape[1])))


@njit(cache=True, nogil=True)
def _learn_kernel(links, success, axes, models, parts, pairs, log_weight, round_):
    feature, client, server = links
    variance, decay, mean, covariance = models
    (server_mean, server_variance), (client_mean, client_variance) = parts
    tag, key, pair_round, pair_mean, pair_variance = pairs
    most = 1 + 2 * feature.shape[1] + 2 * feature.shape[1] * (feature.shape[1] - 1)
    index, share = np.empty(most, np.int64), np.empty(most)
    rank = np.empty(feature.shape[1])
    num_servers, num_weights = server_mean.shape[1], mean.shape[1]
    cross = np.empty(num_weights)
    added = 0
    for row in range(client.shape[0]):
        n, s = client[row], server[row]
        if n < 0:  # forgotten since
            continue
        count = _nodes(feature[row], axes, index, share, rank)
        slot = slot_of(key, tag[n] * num_servers + s)
        if key[slot] == EMPTY:
            key[slot] = tag[n] * num_servers + s
            pair_round[slot] = round_
            for k in range(variance.shape[0]):
                pair_mean[slot, k], pair_variance[slot, k] = 0.0, variance[k]
            added += 1
        y = 1.0 if success[row] else -1.0
        for k in range(variance.shape[0]):
            if variance[k] > 0.0:
                left = decay[k] ** (round_ - pair_round[slot])
                pair_mean[slot, k] *= left
                pair_variance[slot, k] = variance[k] + left * left * (pair_variance[slot, k] - variance[k])
            m = client_mean[k, n] + server_mean[k, s] + pair_mean[slot, k]
            v = 0.0
            cross[:] = 0.0
            for a in range(count):
                for i in range(num_weights):
                    cross[i] += share[a] * covariance[k, index[a], i]
                m += share[a] * mean[k, index[a]]
            for a in range(count):
                v += share[a] * cross[index[a]]
            v = max(v, 0.0) + client_variance[k, n] + server_variance[k, s] + pair_variance[slot, k]
            deviation = math.sqrt(1.0 + v)
            z = y * m / deviation
            log_mass, ratio = _normal_tail(z)
            log_weight[k] += log_mass
            gain = y * ratio / deviation
            loss = min(max(ratio * (ratio + z), 0.0), 1.0) / (1.0 + v)
            for i in range(num_weights):
                mean[k, i] += gain * cross[i]
                scaled = loss * cross[i]
                for j in range(num_weights):
                    covariance[k, i, j] -= scaled * cross[j]
            client_mean[k, n] += gain * client_variance[k, n]
            client_variance[k, n] *= 1.0 - loss * client_variance[k, n]
            server_mean[k, s] += gain * server_variance[k, s]
            server_variance[k, s] *= 1.0 - loss * server_variance[k, s]
            pair_mean[slot, k] += gain * pair_variance[slot, k]
            pair_variance[slot, k] *= 1.0 - loss * pair_variance[slot, k]
        pair_round[slot] = round_
    return added


def learn(
    state: ProbitState,
    client: IntArray,
    server: IntArray | None,
    features: FloatArray,
    success: BoolArray,
    *,
    round: int,
) -> ProbitState:
    """Take observations in, under the contexts of their choice; the order in which they come does not matter.

    A client that was forgotten since is ignored.
    """
    tag = state.tag[client]
    known = np.flatnonzero(tag >= 0)
    rounds = np.concatenate((state.new_round, np.full(known.shape[0], round)))
    tags = np.concatenate((state.new_tag, tag[known]))
    servers = np.concatenate((state.new_server, _servers(server, client.shape[0])[known]))
    order = np.lexsort((servers, tags, rounds))
    return replace(
        state,
        new_round=rounds[order],
        new_tag=tags[order],
        new_server=servers[order],
        new_features=np.concatenate((state.new_features, features[known]))[order],
        new_success=np.concatenate((state.new_success, success[known]))[order],
    )


def settle(state: ProbitState) -> ProbitState:
    """Return what is believed after the new observations; ``state`` itself is not changed."""
    if not state.new_tag.shape[0]:
        return state
    return _settle(deepcopy(state))


def _settle(state: ProbitState) -> ProbitState:
    """Learn from the new observations, one after the other: each weighs the models and then moves all of them."""
    rows = state.new_tag.shape[0]
    if rows == 0:
        return state
    if state.num_pairs + rows > FULLEST * state.key.shape[0]:
        key, used, place = roomier(state.key, state.server_mean.shape[1], state.tag, rows)
        grown: dict[str, Any] = {"key": key}
        for name in ("pair_round", "pair_mean", "pair_variance"):
            values = getattr(state, name)
            grown[name] = np.zeros((key.shape[0], *values.shape[1:]), values.dtype)
            grown[name][place] = values[used]
        state = replace(state, num_pairs=int(used.shape[0]), **grown)
    holders = np.flatnonzero(np.isin(state.tag, state.new_tag))
    holders = np.append(holders[np.argsort(state.tag[holders])], state.tag.shape[0])
    place = np.searchsorted(state.tag[holders[:-1]], state.new_tag)
    client = holders[place]
    lost = np.append(state.tag, -1)[client] != state.new_tag
    client[lost] = -1
    links = (state.new_features, client, state.new_server)
    models = (state.variance, state.decay, state.mean, state.covariance)
    known = (links, state.new_success, state.axes, models, state.parts, state.pairs, state.log_weight)
    added = _learn_kernel(*known, state.round)
    nothing = _nothing_new(state.new_features.shape[1])
    return replace(state, num_pairs=state.num_pairs + int(added), **nothing)
