r"""Exchange times according to a log: draws from the posterior of a regression.

The time of client n with context c (a leading 1 included) is taken to be

.. math:: \tau_{t,n} = c_{t,n}^\top \theta_n \; \epsilon_{t,n}, \qquad
    \theta_n \sim N(m, S), \qquad
    E\,\epsilon = 1

with the scatter of each client as far as its own data supports one.  Coefficients, their mean and variance are drawn in
turn, each given the others (Gibbs sampling); the shape of the scatter is that of the residuals under the drawn values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedroster.lab.replay.history import History
from fedroster.types import FloatArray, IntArray

_PRIOR_SPREAD = 0.12  # of a coefficient between clients alike, as a share of their mean time; worth a few clients
_PRIOR_WIDTH = 1.0  # of a group's mean coefficients
_GROUPS = 6  # of clients alike; those that are not needed stay empty
_LEAST_MEAN = 0.02  # of the mean of all times: no client is expected to be faster
_BURN_IN, _THIN = 25, 3


@dataclass(frozen=True, slots=True)
class Times:
    """One draw of what the network may be.

    Attributes:
        coefficients: theta of each client, the constant first, shape (clients, 1 + D).
        ratios: Scatter of the logged exchanges about their means, ascending, mean 1, shape (timed,).
        spread: How much wider each client scatters than all together, shape (clients,).
        ratio: Scatter of each exchange itself, in the log's order, shape (exchanges,); NaN where no time was measured.
        least_s: Least mean, seconds.
    """

    coefficients: FloatArray
    ratios: FloatArray
    spread: FloatArray
    ratio: FloatArray
    least_s: float

    def means(self, client: IntArray, features: FloatArray) -> FloatArray:
        """Expected times of some clients, shape (k,), seconds."""
        theta = self.coefficients[client]
        mean = theta[:, 0] + np.einsum("kd,kd->k", theta[:, 1:], features)
        found: FloatArray = np.maximum(mean, self.least_s)
        return found

    def scatter(self, client: IntArray, uniform: FloatArray) -> FloatArray:
        """Draw ratios by inverse transform, shape (k,)."""
        ratio = self.ratios[(uniform * self.ratios.shape[0]).astype(np.int64)]
        found: FloatArray = np.maximum(1.0 + self.spread[client] * (ratio - 1.0), 0.01 * ratio)
        return found


def _design(history: History, rows: IntArray) -> FloatArray:
    """Rows of a regression: the constant and the context, unknown entries at their column's mean."""
    context = history.features[history.round[rows], history.client[rows]]
    mean = np.nan_to_num(np.nanmean(context, axis=0)) if context.shape[0] and context.shape[1] else 0.0
    return np.column_stack((np.ones(rows.shape[0]), np.where(np.isnan(context), mean, context)))


class _Sampler:
    """The state of the chain."""

    def __init__(self, history: History, *, rng: Generator) -> None:
        self.history, self.rng = history, rng
        rows = np.flatnonzero(history.timed)
        self.client, self.time_s = history.client[rows], history.time_s[rows]
        design = _design(history, rows)
        self.scale = np.maximum(np.abs(design).mean(axis=0), 1e-300)
        varies = np.append(True, design[:, 1:].std(axis=0) > 1e-9 * self.scale[1:])
        self.scale[~varies] = np.inf  # a constant column says what the constant says
        self.design = design / self.scale
        self.usual = self.design.mean(axis=0)
        self.mean_s = float(self.time_s.mean())
        self.count = np.bincount(self.client, minlength=history.num_clients)
        width = design.shape[1]
        self.theta = np.zeros((history.num_clients, width))
        usual = np.where(self.count > 0, self._means_of(self.time_s), self.mean_s)
        # One line for all; a client that is slower than it says is slower in every part, until its data tell otherwise.
        from scipy.optimize import nnls

        line, _ = nnls(self.design / usual[self.client, None], self.time_s / usual[self.client])
        fitted = np.maximum(self.design @ line, 1e-9 * self.mean_s)
        self.pace = np.where(self.count > 0, self._means_of(self.time_s / fitted), 1.0)
        self.line = line
        middles = (np.arange(_GROUPS) + 0.5) / _GROUPS
        paces = np.quantile(self.pace[self.count > 0], middles)
        self.centre = paces[:, None] * line
        self.variance = np.tile((0.3 * self.mean_s) ** 2 * np.eye(width), (_GROUPS, 1, 1))
        self.weight = np.full(_GROUPS, 1.0 / _GROUPS)
        self.group = np.zeros(history.num_clients, np.int64)
        self.sigma, self.spread = 0.5, np.ones(history.num_clients)
        self.means = usual[self.client]  # what the scatter is in proportion to
        for _ in range(_BURN_IN):
            self.step()

    def _sums_of(self, values: FloatArray) -> FloatArray:
        """The sum over each client's times, shape (clients,)."""
        return np.bincount(self.client, values, minlength=self.count.shape[0]).astype(np.float64)

    def _means_of(self, values: FloatArray) -> FloatArray:
        return self._sums_of(values) / np.maximum(self.count, 1)

    def step(self) -> None:
        """Draw everything once."""
        self._draw_coefficients()
        self._draw_population()
        self._draw_scatter()

    def fitted(self, theta: FloatArray) -> FloatArray:
        """Means of the timed exchanges under these coefficients, shape (timed,), seconds."""
        return self._at_least(np.einsum("kd,kd->k", self.design, theta[self.client]))

    def _at_least(self, mean_s: FloatArray) -> FloatArray:
        return np.maximum(mean_s, _LEAST_MEAN * self.mean_s)

    def _draw_coefficients(self) -> None:
        """Each client's group, given its times with its coefficients integrated out; then its coefficients."""
        clients, width = self.theta.shape
        log_weight = np.empty((clients, _GROUPS))
        parts: list[tuple[FloatArray, FloatArray]] = []
        wide = self.sigma * self.spread[self.client]
        for group in range(_GROUPS):
            # Times scatter in proportion to the group's means: with a client's own, low ones would weigh more.
            noise = wide * self._at_least(self.design @ self.centre[group])
            x, y = self.design / noise[:, None], self.time_s / noise
            data = np.empty((clients, width, width))
            right = np.empty((clients, width))
            for i in range(width):
                right[:, i] = self._sums_of(x[:, i] * y)
                for j in range(i + 1):
                    data[:, i, j] = data[:, j, i] = self._sums_of(x[:, i] * x[:, j])
            inverse = np.linalg.inv(self.variance[group])
            centre = self.centre[group]
            precision = data + inverse
            rest = right - data @ centre
            step = np.linalg.solve(precision, rest[..., None])[..., 0]
            by_width = np.linalg.slogdet(inverse)[1] - np.linalg.slogdet(precision)[1]
            by_times = 0.5 * (rest * step).sum(axis=1) + right @ centre - 0.5 * (data @ centre) @ centre
            log_weight[:, group] = 0.5 * by_width
            log_weight[:, group] += by_times
            log_weight[:, group] -= self._sums_of(np.log(noise) + 0.5 * y * y)
            parts.append((centre + step, precision))
        log_weight += np.log(self.weight) - np.log(self.rng.standard_exponential(log_weight.shape))
        self.group = log_weight.argmax(axis=1)
        row = np.arange(clients)
        means, precisions = map(np.stack, zip(*parts, strict=True))
        mean = means[self.group, row]
        root = np.linalg.cholesky(precisions[self.group, row])
        normal = self.rng.standard_normal((clients, width, 1))
        self.theta = mean + np.linalg.solve(root.transpose(0, 2, 1), normal)[..., 0]
        self.means = self.fitted(mean)

    def _draw_population(self) -> None:
        """Mean, variance and share of each group of clients, of those that were measured."""
        width, total = self.theta.shape[1], np.zeros(_GROUPS)
        wide = 1.0 / (_PRIOR_WIDTH * self.mean_s) ** 2
        for group in range(_GROUPS):
            measured = (self.group == group) & (self.count > 0)
            own = self.theta[measured]
            total[group] = own.shape[0]
            # The mean given the variance, then the variance given the mean.
            inverse = np.linalg.inv(self.variance[group])
            precision = own.shape[0] * inverse + wide * np.eye(width)
            pace = (self.pace[measured] if own.shape[0] else self.pace).mean()
            mean = np.linalg.solve(precision, inverse @ own.sum(axis=0) + wide * pace * self.line)
            normal = self.rng.standard_normal(width)
            self.centre[group] = mean + np.linalg.solve(np.linalg.cholesky(precision).T, normal)
            deviation = own - self.centre[group]
            usual_s = max(float(self.usual @ self.centre[group]), _LEAST_MEAN * self.mean_s)
            scale = (width + 2.0) * (_PRIOR_SPREAD * usual_s) ** 2 * np.eye(width) + deviation.T @ deviation
            root = np.linalg.cholesky(np.linalg.inv(scale))
            lower = np.tril(self.rng.standard_normal((width, width)), -1)
            freedom = width + 2.0 + own.shape[0] - np.arange(width)
            lower[np.diag_indices(width)] = np.sqrt(self.rng.chisquare(freedom))
            factor = root @ lower
            variance = np.linalg.inv(factor @ factor.T)
            self.variance[group] = 0.5 * (variance + variance.T)
        self.weight = np.maximum(self.rng.dirichlet(total + 0.5), 1e-12)

    def _draw_scatter(self) -> None:
        """How far times scatter: all together, and each client's own share as far as data supports it."""
        square = ((self.time_s - self.fitted(self.theta)) / self.means) ** 2
        total = float(square.mean())
        kurtosis = float((square**2).mean()) / max(total * total, 1e-300)
        # The log of a client's mean square has this variance by chance alone.
        by_chance = max(kurtosis - 1.0, 0.5) / np.maximum(self.count, 1)
        own = self._means_of(square)
        known = self.count >= 5
        ratio = np.maximum(own, 1e-6 * total) / max(total, 1e-300)
        log_own = np.clip(np.log(ratio), -4.0, 4.0)
        between = 0.0
        if np.count_nonzero(known) >= 5:
            between = max(float(log_own[known].var() - by_chance[known].mean()), 0.0)
        gain = np.zeros(own.shape[0])
        if between > 0.02:
            gain = np.where(known, between / (between + by_chance), 0.0)
        self.spread = np.exp(0.5 * gain * log_own)
        width = np.sqrt(max(kurtosis - 1.0, 0.0) / square.shape[0])
        chance = 1.0 + width * self.rng.standard_normal()
        self.sigma = float(np.sqrt(max(total * max(chance, 0.2), 1e-12)))


def draw_times(history: History, count: int, *, rng: Generator) -> list[Times]:
    """Draw from what is believed about times after a log with at least one measured time."""
    sampler = _Sampler(history, rng=rng)
    drawn: list[tuple[FloatArray, FloatArray, FloatArray, float]] = []
    for _ in range(count):
        for _ in range(_THIN):
            sampler.step()
        ratio = sampler.time_s / sampler.fitted(sampler.theta)
        drawn.append((sampler.theta / sampler.scale, sampler.spread, ratio, sampler.sigma))
    # Shape: residuals about the mean of all draws, which the doubt about a single client blurs least; how often each
    # counts is drawn (the bootstrap).  Width: that of each draw.
    shape = 1.0 / np.mean([1.0 / ratio for _, _, ratio, _ in drawn], axis=0)
    found = []
    ratio = np.full(history.client.shape, np.nan)
    for theta, spread, own, width in drawn:
        ratio[history.timed] = own
        common = 1.0 + (shape - 1.0) / spread[sampler.client]
        wide = min(width / max(float(common.std()), 1e-12), 1.5)
        common = np.maximum(1.0 + wide * (common - float(common.mean())), 0.0)
        picked = np.sort(common[rng.integers(common.shape[0], size=common.shape[0])])
        ratios = picked / max(float(picked.mean()), 1e-300)
        found.append(Times(theta, ratios, spread, ratio.copy(), _LEAST_MEAN * sampler.mean_s))
    return found
