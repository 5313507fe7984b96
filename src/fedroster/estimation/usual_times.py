r"""What every client's round usually takes, and what it takes now, by regression on contexts.

A client's usual time is its coefficients (:mod:`fedroster.estimation.random_coefficients`) times its mean context.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.compiled import interpreted_at_first, njit
from fedroster.core.problem import Feedback, RoundContext
from fedroster.core.state import per_client
from fedroster.estimation.random_coefficients import (
    CoefficientsState,
    begin_round,
    coefficients_init,
    estimate_population,
    learn,
    rescale,
)

LEAST_USUAL = 0.05
"""No client is taken to be usually faster than this part of the mean of all observed times."""
LEAST_NOW = 0.1
"""And none to be faster now than this part of its usual time."""
LARGEST = 1e50
"""Times and features beyond it, and times below its inverse, are no measurements: arithmetic overflows with their
squares and those of their ratios."""
_LEAST_SCALE = 0.25  # an observation weighs as that of a client with at least this part of the mean
_HORIZON = 1000.0  # contexts over which a client's usual one is averaged
_CONTEXTS = 4096  # this many contexts, or 1/16 of all, are averaged in a round; larger fleets take turns
_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class UsualTimesState:
    """The estimates of times: about 150 bytes a client for three features.

    Attributes:
        times: Coefficients of each client and of the population.
        usual_context: Mean context of each client, shape (D, clients).
        contexts_seen: How many that is the mean of, shape (clients,).
        usual_s: Usual time of each client, its coefficients times its mean context, shape (clients,), seconds.
    """

    times: CoefficientsState
    usual_context: FloatArray = per_client(least=-LARGEST, most=LARGEST)
    contexts_seen: FloatArray = per_client(least=0.0)
    usual_s: FloatArray = per_client(least=-(LARGEST**4), most=LARGEST**4)

    @property
    def known(self) -> tuple[FloatArray, FloatArray]:
        """Coefficients, shape (D, clients), and usual times, shape (clients,), seconds."""
        return self.times.coefficients, self.usual_s


def usual_times_init(num_clients: int, num_features: int) -> UsualTimesState:
    """State before any observation."""
    return UsualTimesState(
        times=coefficients_init(num_clients, num_features),
        usual_context=np.zeros((num_features, num_clients)),
        contexts_seen=np.zeros(num_clients),
        usual_s=np.zeros(num_clients),
    )


@njit(cache=True, nogil=True)
def _note_contexts(features, client, available, contexts_seen, usual_context, usual_s, coefficients, begin, size):
    """Average the contexts of ``size`` rows from ``begin`` on, around the end."""
    num_features, num_rows = features.shape
    for i in range(size):
        row = (begin + i) % num_rows
        if not available[row]:
            continue
        n = client[row] if client.shape[0] else row
        contexts_seen[n] += 1.0
        weight = 1.0 / min(contexts_seen[n], _HORIZON)
        mean = 0.0
        for j in range(num_features):
            feature = max(min(features[j, row], LARGEST), -LARGEST)
            usual_context[j, n] += weight * (feature - usual_context[j, n])
            mean += coefficients[j, n] * usual_context[j, n]
        usual_s[n] = mean


def _scale(usual_s: FloatArray, mean_time_s: float) -> FloatArray:
    """s_n: usual times; a wrong first impression of great speed must not give an observation the weight of many."""
    known: FloatArray = np.where(usual_s != 0.0, np.maximum(usual_s, _LEAST_SCALE * mean_time_s), mean_time_s)
    return known


def next_round(state: UsualTimesState, context: RoundContext) -> UsualTimesState:
    """Note contexts, and estimate the population when it is due."""
    size = min(context.num_links, max(_CONTEXTS, context.num_links // 16))
    if size:
        interpreted_at_first(_note_contexts, size)(
            np.ascontiguousarray(context.features.T),
            _ROWS if context.client is None else context.client,
            context.available,
            state.contexts_seen,
            state.usual_context,
            state.usual_s,
            state.times.coefficients,
            context.round * size % context.num_links,
            size,
        )
    times = begin_round(state.times)
    if times.observations >= times.estimate_at:
        times = estimate_population(times, scale_s=_scale(state.usual_s, times.mean_time_s))
        (times.coefficients * state.usual_context).sum(axis=0, out=state.usual_s)
    return replace(state, times=times)


def learn_times(state: UsualTimesState, feedback: Feedback, *, memory: float) -> UsualTimesState:
    """Learn times; ``memory`` is the number of observations of a client after which one counts for 1/e, >= 1."""
    # What a broken clock says must not cost the others what is known of them.
    time_s, size = feedback.exchange_time_s, np.abs(feedback.features)
    observed = (time_s >= 1.0 / LARGEST) & (time_s <= LARGEST) & (size <= LARGEST).all(axis=1)
    client, time_s = feedback.client[observed], time_s[observed]
    features = np.where(size < 1.0 / LARGEST, 0.0, feedback.features)[observed]
    scale_s = _scale(state.usual_s[client], state.times.begun_mean_time_s)
    times = learn(state.times, client, features, time_s, scale_s=scale_s, memory=memory)
    if times.is_known:
        state.usual_s[client] = (times.coefficients[:, client] * state.usual_context[:, client]).sum(axis=0)
    return replace(state, times=times)


def rescale_times(state: UsualTimesState, client: IntArray, factor: FloatArray) -> UsualTimesState:
    """Multiply the one time that there is of each of some clients; 0 forgets it."""
    state.usual_s[client] *= factor
    return replace(state, times=rescale(state.times, client, factor))


def expected_times(state: UsualTimesState, clients: IntArray, features: FloatArray) -> FloatArray:
    """Predictions, shape (k,), seconds; NaN before the first observation of any client."""
    if not state.times.is_known:
        return np.full(clients.shape[0], np.nan)
    features = np.clip(features, -LARGEST, LARGEST)
    predicted_s = (state.times.coefficients[:, clients] * features.T).sum(axis=0)
    usual_s = np.where(state.usual_s[clients] != 0.0, state.usual_s[clients], predicted_s)
    least_s = LEAST_NOW * np.maximum(usual_s, LEAST_USUAL * state.times.mean_time_s)
    time_s: FloatArray = np.minimum(np.maximum(predicted_s, least_s), LARGEST)
    return time_s
