r"""Ridge regression for every client at once, with confidence widths (Huang et al. 2021, section 4.4).

For client n the paper keeps :math:`H_n = \lambda I + \sum_t x_{t,n} c_{t,n} c_{t,n}^\top` and
:math:`b_n = \sum_t x_{t,n} \tau_{t,n} c_{t,n}` and needs, each round,

.. math:: c^\top H_n^{-1} b_n \quad\text{(17)(18)}, \qquad \sqrt{c^\top H_n^{-1} c} \quad\text{(19)}.

Here the Cholesky factor :math:`H_n = L_n L_n^\top` and the whitened moment :math:`z_n = L_n^{-1} b_n` are kept
instead.  One forward substitution :math:`w = L_n^{-1} c` gives both: the estimate is :math:`w \cdot z_n`, the width
is :math:`\|w\|`. An observation is a rank-one update of :math:`[L_n^\top\;z_n]` by Givens rotations (square-root
recursive least squares): no inverse is ever formed, and rounding errors do not accumulate as they do with Sherman and
Morrison's formula.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedroster.core.arrays import BoolArray, FloatArray, IntArray
from fedroster.core.compiled import interpreted_at_first, njit
from fedroster.core.parallel import for_ranges
from fedroster.core.problem import ProblemSpec
from fedroster.core.state import per_client

_BLOCK = 1024  # clients for each pass over the features: the working set stays in the first-level cache
_LARGEST = 1e100  # a time beyond it is none; its product with V must not overflow
_LARGEST_FEATURE = 1e50  # a feature beyond it counts as it: neither a width nor a factor may overflow


@dataclass(frozen=True, slots=True)
class RidgeState:
    """The estimates for every client.

    Attributes:
        factor: Cholesky factors L, shape (D (D+1) / 2, clients): first the D reciprocals of the diagonal, then the rows
            below the diagonal, one after the other.
        moment: Whitened moments z = L^-1 b, shape (D, clients).
    """

    factor: FloatArray = per_client(least=-math.inf)
    moment: FloatArray = per_client(least=-math.inf)

    def flaw(self, spec: ProblemSpec) -> str:
        """Why it is impossible in a federation; empty if it is possible."""
        diagonal = self.factor[: self.moment.shape[0]]
        return "" if (diagonal > 0.0).all() else "the diagonal of a Cholesky factor is not positive"


def ridge_init(num_clients: int, num_features: int, *, ridge: float) -> RidgeState:
    r"""State before any observation: :math:`H_n = \lambda I,\ b_n = 0` (Algorithm 2, line 2)."""
    factor = np.zeros((num_features * (num_features + 1) // 2, num_clients))
    factor[:num_features] = 1.0 / math.sqrt(ridge)
    return RidgeState(factor=factor, moment=np.zeros((num_features, num_clients)))


@njit(cache=True, nogil=True, error_model="numpy")
def _bounds_kernel(features, factor, moment, available, alpha, bound, start, stop):
    num_features = features.shape[0]
    whitened = np.empty((num_features, _BLOCK))
    mean = np.empty(_BLOCK)
    square = np.empty(_BLOCK)
    for low in range(start, stop, _BLOCK):
        high = min(low + _BLOCK, stop)
        width = high - low
        mean[:] = 0.0
        square[:] = 0.0
        for i in range(num_features):  # forward substitution, row i, for the whole block
            w_i = whitened[i]
            c_i = features[i, low:high]
            for n in range(width):
                w_i[n] = max(min(c_i[n], _LARGEST_FEATURE), -_LARGEST_FEATURE)
            first = num_features + i * (i - 1) // 2
            for j in range(i):
                l_ij = factor[first + j, low:high]
                w_j = whitened[j]
                for n in range(width):
                    w_i[n] -= l_ij[n] * w_j[n]
            reciprocal = factor[i, low:high]
            z_i = moment[i, low:high]
            for n in range(width):
                w = w_i[n] * reciprocal[n]
                w_i[n] = w
                mean[n] += w * z_i[n]
                square[n] += w * w
        out = bound[low:high]
        usable = available[low:high]
        for n in range(width):
            lower = max(mean[n] - alpha * math.sqrt(square[n]), 0.0)
            lower = lower if lower <= _LARGEST else _LARGEST  # not a number, too
            out[n] = lower if usable[n] else np.inf


def lower_bounds(
    state: RidgeState,
    features: FloatArray,
    *,
    alpha: float,
    available: BoolArray | None = None,
    client: IntArray | None = None,
) -> FloatArray:
    r"""Optimistic exchange times of all links (Huang et al. 2021, Eq. 19).

    .. math:: \bar\tau_n = \max\{c_n^\top \hat\theta_n - \alpha \sqrt{c_n^\top H_n^{-1} c_n},\ 0\}

    Args:
        state: What is believed.
        features: Context vectors c, shape (links, D).
        alpha: Exploration factor alpha_t, >= 0.
        available: Links in use, shape (links,); None for all.
        client: Client of each link, shape (links,); None when row i is client i.

    Returns:
        Shape (links,), seconds, in [0, 1e100]; infinite for links that are not available.

    Deviations: the clamp at zero is (19)'s; Algorithm 2, line 9 omits it (Choice A3).  The one at 1e100 is ours, and
    features beyond 1e50 count as 1e50: a client with such a context is slow, neither absent nor as fast as can be, and
    costs the others nothing.
    """
    factor, moment = state.factor, state.moment
    if client is not None:
        factor, moment = factor[:, client], moment[:, client]
    num_links = features.shape[0]
    usable = np.ones(num_links, np.bool_) if available is None else available
    bound = np.empty(num_links)
    columns = np.ascontiguousarray(features.T)
    kernel = interpreted_at_first(_bounds_kernel, num_links)
    for_ranges(kernel, num_links, columns, factor, moment, usable, float(alpha), bound)
    return bound


@njit(cache=True, nogil=True, error_model="numpy")
def _observe_kernel(factor, moment, client, features, target):
    num_features = moment.shape[0]
    c = np.empty(num_features)
    for row in range(client.shape[0]):
        y = min(target[row], _LARGEST)
        if math.isnan(target[row]):
            continue
        n = client[row]
        for i in range(num_features):
            c[i] = max(min(features[row, i], _LARGEST_FEATURE), -_LARGEST_FEATURE)
        for i in range(num_features):  # rotate c into row i of L^T, so that c[i] becomes zero
            diagonal = 1.0 / factor[i, n]
            radius = np.hypot(diagonal, c[i])  # the same compiled and interpreted, as math.hypot is not
            cosine = diagonal / radius
            sine = c[i] / radius
            factor[i, n] = 1.0 / radius
            for j in range(i + 1, num_features):
                below = num_features + j * (j - 1) // 2 + i
                l_ji = factor[below, n]
                factor[below, n] = cosine * l_ji + sine * c[j]
                c[j] = cosine * c[j] - sine * l_ji
            z_i = moment[i, n]
            moment[i, n] = cosine * z_i + sine * y
            y = cosine * y - sine * z_i


def observe(state: RidgeState, client: IntArray, features: FloatArray, target: FloatArray) -> RidgeState:
    r"""Add observations: :math:`H_n \gets H_n + c c^\top,\ b_n \gets b_n + \tau c` (Algorithm 2, lines 15 and 16).

    A client may occur more than once.  Rows of a time NaN are skipped; times beyond 1e100 and features beyond 1e50
    count as that.
    """
    kernel = interpreted_at_first(_observe_kernel, client.shape[0])
    kernel(state.factor, state.moment, client, np.ascontiguousarray(features), target)
    return state


def rescale(state: RidgeState, client: IntArray, factor: FloatArray, *, ridge: float) -> RidgeState:
    """Multiply all observed times of some clients; 0 forgets the observations."""
    state.moment[:, client] *= factor
    gone = client[factor == 0.0]
    state.factor[:, gone] = 0.0
    state.factor[: state.moment.shape[0], gone] = 1.0 / math.sqrt(ridge)
    return state


def alpha_schedule(
    round: int, *, noise: float, feature_norm: float, coefficient_norm: float, delta: float, ridge: float
) -> float:
    r"""Lemma 1's exploration factor (Huang et al. 2021) at t >= 1, for :class:`~fedroster.policies.RBCSF`'s symbols.

    .. math:: \alpha_t = R \sqrt{3 \log\frac{1 + t L^2/\lambda}{\delta}} + \sqrt\lambda\, S
    """
    return noise * math.sqrt(3.0 * math.log((1.0 + round * feature_norm**2 / ridge) / delta)) + (
        math.sqrt(ridge) * coefficient_norm
    )
