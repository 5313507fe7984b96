r"""Random-coefficients regression: what is known of some clients predicts the others.

Every client has coefficients of its own, drawn from one population, and its times vary in proportion to their mean:

.. math:: \tau_i = c_i^\top \theta_n + s_n \epsilon_i,\quad \mathbb E\,\epsilon_i^2 = \sigma^2,\qquad
    \theta_n \sim \mathcal N(\bar\theta, \Sigma)

with :math:`s_n` the client's usual time.  (Swamy 1970; Laird and Ware 1982.)  Given the population, a client's
coefficients have the mean of ridge regression that shrinks towards :math:`\bar\theta`, in the directions and as far as
clients are alike:

.. math:: \hat\theta_n = V_n (b_n/\sigma^2 + \Sigma^{-1} \bar\theta),\quad V_n = (H_n/\sigma^2 + \Sigma^{-1})^{-1},\quad
    H_n = \sum_i c_i c_i^\top / s_n^2,\quad b_n = \sum_i c_i \tau_i / s_n^2

and the population is estimated from all observed clients, its mean by generalised least squares, the rest by
expectation maximisation:

.. math:: \bar\theta = \Bigl(\sum_n Q_n H_n / \sigma^2\Bigr)^{-1} \sum_n Q_n b_n / \sigma^2,\quad
    Q_n = I - H_n V_n / \sigma^2

.. math:: \Sigma = \operatorname{mean}\,[V_n + (\hat\theta_n - \bar\theta)(\hat\theta_n - \bar\theta)^\top],\qquad
    \sigma^2 = \frac{\sum_n r_n + \operatorname{tr}(H_n V_n)}{\sum_n k_n}

with :math:`r_n` the weighted residual sum of squares and :math:`k_n` the number of observations.  A client that was
never observed has :math:`\bar\theta`.  Old observations fade: an observation counts for a factor of
:math:`1 - 1/h` less with each later one of the same client.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedroster.core.arrays import FloatArray, IntArray
from fedroster.core.compiled import interpreted_at_first, njit
from fedroster.core.parallel import for_ranges
from fedroster.core.problem import ProblemSpec
from fedroster.core.state import kept, per_client

_FIRST_NOISE = 0.5  # sigma^2 before anything is known: times spread by some 70 %
_ITERATIONS = 3  # of expectation maximisation each time; it starts where it stopped
_GROWTH = 1.1  # the population is estimated again when the data has grown by this factor
_JITTER = 1e-9
_LEAST_NOISE = 1e-8
_MOST_CERTAIN = 1e12  # a client is known so much better than the population at most; arithmetic ends at 1e16
_ROUNDING = 1e-15
_PSD_ROUNDING = 1e-6  # of a client's largest information, by which sums may have lost definiteness
_OUT_OF_PROPORTION = 1e6  # a client beyond this multiple of the usual feature is ignored by the pseudo-client
_MOST = 1e200  # no time and no context is so great that a state exceeds it


@dataclass(frozen=True, slots=True)
class CoefficientsState:
    """The estimates of the clients' coefficients.

    Attributes:
        mean: theta-bar, shape (D,).
        covariance: Sigma, shape (D, D); zero before the population was first estimated.
        noise: sigma^2, relative to the square of the usual time.
        total_s: Sum of the observed times that still count, seconds.
        num_counted: How many times still count.
        observations: How many there were.
        estimate_at: Number of observations at which the population is estimated again.
        begun_total_s: ``total_s`` when the round began: what a round brings is learned alike in any order and parts.
        begun_counted: ``num_counted`` then.
        begun_observations: ``observations`` then.
        new_s: Sum of the times observed since, seconds.
        information: s_n^2 H_n, its lower triangle by rows, shape (D (D+1) / 2, clients).
        moment: s_n^2 b_n, shape (D, clients).
        square: Sum of squared times, shape (clients,).
        count: Observations that still count, k_n, shape (clients,).
        coefficients: The estimates, shape (D, clients).
    """

    mean: FloatArray = kept(-_MOST, _MOST)
    covariance: FloatArray = kept(-_MOST, _MOST)
    noise: float = kept(0.0, _MOST)
    total_s: float = kept(0.0, _MOST)
    num_counted: float = kept(0.0, _MOST)
    observations: int = kept(0)
    estimate_at: float = kept(0.0)
    begun_total_s: float = kept(0.0, _MOST)
    begun_counted: float = kept(0.0, _MOST)
    begun_observations: int = kept(0)
    new_s: float = kept(0.0, _MOST)
    information: FloatArray = per_client(least=-_MOST, most=_MOST)
    moment: FloatArray = per_client(least=-_MOST, most=_MOST)
    square: FloatArray = per_client(least=0.0, most=_MOST)
    count: FloatArray = per_client(least=0.0)
    coefficients: FloatArray = per_client(least=-_MOST, most=_MOST)

    def flaw(self, spec: ProblemSpec) -> str:
        """Why it is impossible in a federation; empty if it is possible."""
        row, column = np.tril_indices(self.moment.shape[0])
        for name, lower in (("information", self.information), ("covariance", self.covariance[row, column, None])):
            largest = lower[row == column].max(axis=0, initial=0.0)
            ratio = np.clip(lower / np.where(largest > 0.0, largest, 1.0), -2.0, 2.0)  # 1 at most in a possible one
            matrix = np.zeros((ratio.shape[1], *self.covariance.shape))
            matrix[:, row, column] = ratio.T
            if np.linalg.eigvalsh(matrix).min(initial=0.0) < -_PSD_ROUNDING:
                return f"its {name} is not positive semidefinite"
        return ""

    @property
    def is_known(self) -> bool:
        """Whether the population was estimated yet; before, all coefficients are zero."""
        return bool(self.covariance.any())

    @property
    def mean_time_s(self) -> float:
        """Mean of the observed times that still count, seconds; 0 before the first."""
        return self.total_s / max(self.num_counted, 1.0)

    @property
    def begun_mean_time_s(self) -> float:
        """The same when the round began, seconds."""
        return self.begun_total_s / max(self.begun_counted, 1.0)


def coefficients_init(num_clients: int, num_features: int) -> CoefficientsState:
    """State before any observation."""
    return CoefficientsState(
        information=np.zeros((num_features * (num_features + 1) // 2, num_clients)),
        moment=np.zeros((num_features, num_clients)),
        square=np.zeros(num_clients),
        count=np.zeros(num_clients),
        coefficients=np.zeros((num_features, num_clients)),
        mean=np.zeros(num_features),
        covariance=np.zeros((num_features, num_features)),
        noise=_FIRST_NOISE,
        total_s=0.0,
        num_counted=0.0,
        observations=0,
        estimate_at=1.0,
        begun_total_s=0.0,
        begun_counted=0.0,
        begun_observations=0,
        new_s=0.0,
    )


def begin_round(state: CoefficientsState) -> CoefficientsState:
    """Take what is known now for what was known when the round began."""
    return replace(
        state,
        begun_total_s=state.total_s,
        begun_counted=state.num_counted,
        begun_observations=state.observations,
        new_s=0.0,
    )


@njit(cache=True, nogil=True, error_model="numpy")
def _inverse(matrix, out):
    """Inverse of a positive definite matrix by Cholesky's factor; overwrites ``matrix``."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(i + 1):
            value = matrix[i, j]
            least = _ROUNDING * value
            for k in range(j):
                value -= matrix[i, k] * matrix[j, k]
            if i == j and not value > 0.0:  # nothing but rounding is left of it
                value = least
            matrix[i, j] = np.sqrt(value) if i == j else value / matrix[j, j]
    for column in range(d):
        for i in range(d):
            value = 1.0 if i == column else 0.0
            for k in range(i):
                value -= matrix[i, k] * out[k, column]
            out[i, column] = value / matrix[i, i]
        for i in range(d - 1, -1, -1):
            value = out[i, column]
            for k in range(i + 1, d):
                value -= matrix[k, i] * out[k, column]
            out[i, column] = value / matrix[i, i]


@njit(cache=True, nogil=True, error_model="numpy")
def _bounded(variance, information, precision, n):
    """(s_n sigma)^2, more where a context is so great that the rest of what is known would be lost in rounding."""
    p = 0
    for i in range(precision.shape[0]):
        variance = max(variance, information[p, n] / (_MOST_CERTAIN * precision[i, i]))
        p += i + 2
    return variance


@njit(cache=True, nogil=True, error_model="numpy")
def _posterior(information, moment, variance, precision, shift, n, work, spread, theta):
    """V_n in ``spread`` and the estimate in ``theta``; ``variance`` is (s_n sigma)^2."""
    d = moment.shape[0]
    p = 0
    for i in range(d):
        for j in range(i + 1):
            value = information[p, n] / variance + precision[i, j]
            work[i, j] = value
            work[j, i] = value
            p += 1
    _inverse(work, spread)
    for i in range(d):
        theta[i] = 0.0
    for j in range(d):
        right = moment[j, n] / variance + shift[j]
        for i in range(d):
            theta[i] += spread[i, j] * right


@njit(cache=True, nogil=True, error_model="numpy")
def _estimate(client, information, moment, count, scale, noise, precision, shift, mean, coefficients, begin, stop):
    d = moment.shape[0]
    work, spread, theta = np.empty((d, d)), np.empty((d, d)), np.empty(d)
    for row in range(begin, stop):
        n = client[row]
        if count[n] > 0.0:
            variance = _bounded(noise * (scale[row] * scale[row]), information, precision, n)
            _posterior(information, moment, variance, precision, shift, n, work, spread, theta)
            for i in range(d):
                coefficients[i, n] = theta[i]
        else:
            for i in range(d):
                coefficients[i, n] = mean[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _expect(information, moment, square, count, scale, noise, precision, shift):
    """Sums over the observed clients: how many, theta, V + theta theta^T, residuals, observations, mean's equations."""
    d = moment.shape[0]
    work, spread, theta = np.empty((d, d)), np.empty((d, d)), np.empty(d)
    first, second = np.zeros(d), np.zeros((d, d))
    weight, right = np.zeros((d, d)), np.zeros(d)
    full, explained = np.empty((d, d)), np.empty((d, d))
    clients, residual, observations = 0, 0.0, 0.0
    for n in range(count.shape[0]):
        if count[n] <= 0.0:
            continue
        weight_n = 1.0 / (scale[n] * scale[n])
        variance = _bounded(noise / weight_n, information, precision, n)
        if variance > noise / weight_n:
            weight_n = noise / variance
        _posterior(information, moment, variance, precision, shift, n, work, spread, theta)
        clients += 1
        observations += count[n]
        residual += weight_n * square[n]
        p = 0
        for i in range(d):
            first[i] += theta[i]
            residual -= 2.0 * weight_n * moment[i, n] * theta[i]
            for j in range(d):
                second[i, j] += spread[i, j] + theta[i] * theta[j]
            for j in range(i + 1):
                twice = 1.0 if i == j else 2.0
                residual += twice * weight_n * information[p, n] * (theta[i] * theta[j] + spread[i, j])
                full[i, j] = weight_n * information[p, n] / noise
                full[j, i] = full[i, j]
                p += 1
        # Generalised least squares: weight (I - H V / sigma^2) H / sigma^2, and the same applied to b.
        for i in range(d):
            for j in range(d):
                explained[i, j] = 0.0
                for k in range(d):
                    explained[i, j] += full[i, k] * spread[k, j]
        for i in range(d):
            right[i] += weight_n * moment[i, n] / noise
            for j in range(d):
                right[i] -= explained[i, j] * weight_n * moment[j, n] / noise
                weight[i, j] += full[i, j]
                for k in range(d):
                    weight[i, j] -= explained[i, k] * full[k, j]
    return clients, first, second, residual, observations, weight, right


@njit(cache=True, nogil=True, error_model="numpy")
def _absorb(client, features, time_s, fade, information, moment, square, count):
    d = moment.shape[0]
    for row in range(client.shape[0]):
        n = client[row]
        p = 0
        for i in range(d):
            for j in range(i + 1):
                information[p, n] = fade * information[p, n] + features[row, i] * features[row, j]
                p += 1
            moment[i, n] = fade * moment[i, n] + features[row, i] * time_s[row]
        square[n] = fade * square[n] + time_s[row] * time_s[row]
        count[n] = fade * count[n] + 1.0


def _solved(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Solve linear equations, shapes (D, D) and (D, k): the same on every processor, as LAPACK is not."""
    size = matrix.shape[0]
    table = np.column_stack((matrix, right))
    for i in range(size):  # Gauss and Jordan, with the largest pivot of the column
        pivot = i + int(np.argmax(np.abs(table[i:, i])))
        table[[i, pivot]] = table[[pivot, i]]
        table[i] /= table[i, i]
        others = np.arange(size) != i
        table[others] -= np.outer(table[others, i], table[i])
    return table[:, size:]


def _times(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Product with a vector: the same on every processor, as that of BLAS is not."""
    product: FloatArray = (matrix * vector).sum(axis=1)
    return product


def _precision(covariance: FloatArray) -> FloatArray:
    # By way of the correlations: coefficients may be in seconds and in seconds per bit.
    deviation = np.sqrt(np.diagonal(covariance))
    unit = np.outer(deviation, deviation)
    one = np.eye(covariance.shape[0])
    precision: FloatArray = _solved(covariance / unit + _JITTER * one, one) / unit
    return precision


def _guess(state: CoefficientsState) -> FloatArray:
    """Coefficients if every feature had an equal part in the mean squared time, shape (D,)."""
    num_features = state.mean.shape[0]
    diagonal = np.cumsum(np.arange(1, num_features + 1)) - 1
    each, square = state.information[diagonal], state.square
    power = each.sum(axis=1)
    seen = np.flatnonzero(state.count > 0.0)
    mean = each[:, seen] / state.count[seen]
    usual = np.median(mean, axis=1, keepdims=True)
    odd = ((mean > _OUT_OF_PROPORTION * usual) & (usual > 0.0)).any(axis=0)
    if odd.any():
        power, square = np.delete(each, seen[odd], axis=1).sum(axis=1), np.delete(square, seen[odd])
    # A feature that was always zero says nothing of its unit; any guess will do.
    guess: FloatArray = np.sqrt(square.sum() / (num_features * np.where(power > 0.0, power, power.max() or 1.0)))
    return guess


def _estimate_rows(
    state: CoefficientsState,
    client: IntArray,
    scale_s: FloatArray,
    mean: FloatArray,
    precision: FloatArray,
    noise: float,
    begin: int,
    stop: int,
) -> None:
    shift, known = _times(precision, mean), (state.information, state.moment, state.count)
    estimate = interpreted_at_first(_estimate, stop - begin)
    estimate(client, *known, scale_s, noise, precision, shift, mean, state.coefficients, begin, stop)


def learn(
    state: CoefficientsState,
    client: IntArray,
    features: FloatArray,
    time_s: FloatArray,
    *,
    scale_s: FloatArray,
    memory: float,
) -> CoefficientsState:
    """Add observations, and estimate the coefficients of their clients again; the state's arrays are reused.

    ``scale_s`` are the usual times s_n of these clients, > 0, and after h = ``memory`` observations of a client one
    counts for 1/e.
    """
    fade = 1.0 - 1.0 / memory
    rows = np.ascontiguousarray(features)
    absorb = interpreted_at_first(_absorb, rows.shape[0])
    absorb(client, rows, time_s, fade, state.information, state.moment, state.square, state.count)
    if state.is_known:
        precision = _precision(state.covariance)
        _estimate_rows(state, client, scale_s, state.mean, precision, state.noise, 0, client.shape[0])
    # The fleet's memory is that of all its clients; until it is full, nothing fades.
    observations, horizon = state.observations + int(client.shape[0]), memory * state.count.shape[0]
    new, new_s = observations - state.begun_observations, state.new_s + float(time_s.sum())
    kept = 1.0 if observations <= horizon else max(1.0 - new / horizon, 0.0)
    return replace(
        state,
        total_s=kept * state.begun_total_s + new_s,
        num_counted=kept * state.begun_counted + new,
        observations=observations,
        new_s=new_s,
    )


def rescale(state: CoefficientsState, client: IntArray, factor: FloatArray) -> CoefficientsState:
    """Multiply the one time that there is of each of some clients; 0 forgets the observation, if there is one."""
    one = state.count[client] == 1.0
    client, factor = client[one], factor[one]
    less_s = float((np.sqrt(state.square[client]) * (1.0 - factor)).sum())
    kept = factor > 0.0
    less = float((~kept).sum())
    for array in (state.moment, state.coefficients):
        array[:, client] *= factor
    state.square[client] *= factor**2
    state.information[:, client] *= kept
    state.count[client] *= kept
    return replace(
        state,
        total_s=max(state.total_s - less_s, 0.0),
        num_counted=max(state.num_counted - less, 0.0),
        begun_total_s=max(state.begun_total_s - less_s, 0.0),
        begun_counted=max(state.begun_counted - less, 0.0),
    )


def estimate_population(state: CoefficientsState, *, scale_s: FloatArray) -> CoefficientsState:
    """Estimate the population, and with it every client, again; the state's arrays are reused.

    One pseudo-client and one pseudo-observation keep the first rounds from certainty, and no feature is ever ruled out:
    the pseudo-client's coefficients give every feature an equal part in the times, and are spread by as much.  Nothing
    changes if no client that was observed is left.

    Cost: O(N D^3).  It pays when there is a tenth more to learn from, which ``estimate_at`` says.
    """
    if not state.square.any():
        return state
    guess = _guess(state)
    prior, pseudo = np.diag(guess**2), np.diag(1.0 / guess**2)
    mean, covariance, noise = state.mean, state.covariance, state.noise
    if not state.is_known:
        mean, covariance = guess, prior
    for _ in range(_ITERATIONS):
        precision = _precision(covariance)
        expect = interpreted_at_first(_expect, 2 * scale_s.shape[0])
        clients, first, second, residual, observations, weight, right = expect(
            state.information,
            state.moment,
            state.square,
            state.count,
            scale_s,
            noise,
            precision,
            _times(precision, mean),
        )
        noise = max((residual + noise) / (observations + 1.0), _LEAST_NOISE)
        mean = _solved(weight + pseudo, (right + 1.0 / guess)[:, None])[:, 0]
        around = second - np.outer(first, mean) - np.outer(mean, first) + clients * np.outer(mean, mean)
        covariance = (around + prior) / (clients + 1.0)
    precision = _precision(covariance)
    clients = np.arange(state.count.shape[0])
    for_ranges(_estimate_rows, clients.shape[0], state, clients, scale_s, mean, precision, noise)
    return replace(
        state, mean=mean, covariance=covariance, noise=float(noise), estimate_at=state.observations * _GROWTH
    )
