r"""Update memory: every client's last update is remembered, and stands in for the clients that are not there.

With :math:`\Delta_k` the update of client k and :math:`y_n` the last known update of client n,

.. math:: x \gets x + \eta \Bigl[\sum_{k \in S} a_k\, c_k\, (\Delta_k - s\, y_k) + s \sum_n p_n y_n\Bigr],\qquad
    y_k \gets \Delta_k,

where a are the cohort's shares, p those of all clients and c weights; a decision's own weights are a c.  s = 1 is
FedVARP (Jhunjhunwala et al. 2022, Algorithm 1) and, one answer or one buffer after the other, CA2FL (Wang et al. 2024,
Algorithm 1); s = 0 is FedAvg; between them lies FedStale (Rodio and Neglia 2024).  With the rule "mean" the rows are
replaced first, and the step is :math:`s \sum_n p_n y_n` alone: MIFA (Gu et al. 2021, Algorithm 1).
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedroster.core.arrays import BoolArray, FloatArray, IntArray, Model
from fedroster.core.errors import ConfigurationError, StateFileError
from fedroster.core.parameters import Count, Natural, Parameters, Share

_BLOCK = 2**13  # columns at once: the rows of a cohort stay in a cache
_HIDES = 1e6


@dataclass(frozen=True, slots=True)
class UpdateMemory(Parameters):
    """How updates are remembered; a table takes a row of d numbers for each client, d the size of the model.

    Attributes:
        share: s, how much remembered updates count, in [0, 1].
        rule: "difference" for FedVARP, FedStale and CA2FL, "mean" for MIFA.
        unknown: What stands for a client without a row: "left-out" for the mean of the others, so that its first update
            moves the model by itself; "zero" for no update, as FedVARP and CA2FL are published.
        longest_age: Steps after which a row is forgotten, >= 1; 0 for never.
        dtype: In which numbers rows are kept.
        groups: Rows of the table, each shared by the clients whose number modulo ``groups`` is the same (as in
            ClusterFedVARP); 0 for one row a client.
        folder: Where the rows lie, in a file without a name that only this process can read; empty for in memory.
        most_bytes: A table whose rows take more is refused.
    """

    share: Share = 1.0
    rule: Literal["difference", "mean"] = "difference"
    unknown: Literal["left-out", "zero"] = "left-out"
    longest_age: Natural = 0
    dtype: Literal["float32", "float16"] = "float32"
    groups: Natural = 0
    folder: str = ""
    most_bytes: Count = 2**32


def corrected(
    update: FloatArray, row: FloatArray, mean: FloatArray, *, share: float, weight: FloatArray | float = 1.0
) -> FloatArray:
    r"""What an update becomes, :math:`c_k (\Delta_k - s\, y_k) + s \sum_n p_n y_n`: one place rewrites all replies.

    Args:
        update: Updates, shape (k, w).
        row: What is remembered of the same clients, shape (k, w).
        mean: Mean of all rows, shape (w,).
        share: s, in [0, 1].
        weight: c, shape (k, 1), or one number, >= 0.
    """
    return weight * (update - share * row) + share * mean


class UpdateTable:
    """The last update of every client, and their mean, which is kept up as rows change: a step of k clients is O(k d).

    A row counts by its client's samples.  Whatever is not finite must be left out by the caller (:meth:`usable`).
    """

    def __init__(self, memory: UpdateMemory, model: Model, num_clients: int) -> None:
        """Know no update of a model's clients 0 to ``num_clients`` - 1.

        Raises:
            ConfigurationError: If the rows would take more than ``most_bytes``.
        """
        self.memory, self._here = memory, np.ones(num_clients, np.bool_)
        begins = accumulate((np.size(value) for value in model.values()), initial=0)
        self._places = {name: (next(begins), np.shape(value)) for name, value in model.items()}  # in a row
        self._total = np.zeros(next(begins))
        self._steps = 0
        count = min(memory.groups or num_clients, num_clients)
        self._rows = self._empty(count)
        self._samples = np.zeros(count)  # mean of those that report to a row; 0 for a row that is not known
        self._learned = np.zeros(count, np.int64)  # the step of its last update

    def _empty(self, count: int) -> NDArray[Any]:
        """Rows of zeros, shape (rows, d)."""
        memory, shape = self.memory, (count, self._total.shape[0])
        size = math.prod(shape) * np.dtype(memory.dtype).itemsize
        if size > memory.most_bytes:
            raise ConfigurationError(
                f"{count:,} updates of {shape[1]:,} numbers take {size:,} bytes as {memory.dtype}; expected at most "
                f"most_bytes = {memory.most_bytes:,}: dtype=float16 halves them, groups shares rows, folder puts them "
                "into a file"
            )
        if not memory.folder:
            return np.zeros(shape, memory.dtype)
        with tempfile.TemporaryFile(dir=memory.folder) as file:  # the mapping keeps it open
            return np.memmap(file, memory.dtype, "r+", shape=shape)

    # ------------------------------------------------------------------ what is known

    @property
    def known(self) -> BoolArray:
        """Whether there is a row for each client, shape (clients,)."""
        found: BoolArray = self._samples[self._row_of(np.arange(len(self._here)))] > 0.0
        return found

    def _row_of(self, clients: IntArray) -> IntArray:
        rows: IntArray = clients % self._rows.shape[0]
        return rows

    @property
    def _sharing(self) -> IntArray:
        """How many clients share each row, shape (rows,)."""
        return np.bincount(self._row_of(np.flatnonzero(self._here)), minlength=self._rows.shape[0])

    @property
    def _weight(self) -> FloatArray:
        """What each row counts: the samples of all that share it, shape (rows,)."""
        return self._samples * self._sharing

    def _divisor(self) -> float:
        """By what the weighted sum of the rows is divided to become their mean."""
        weight = self._weight
        if self.memory.unknown == "zero":  # as many samples for the others as for those that are known
            num_known = np.count_nonzero(self.known & self._here)
            return float(weight.sum() * np.count_nonzero(self._here) / max(num_known, 1))
        return float(weight.sum())

    def _mean(self, columns: slice, divisor: float) -> FloatArray:
        total: FloatArray = self._total[columns]
        return total / divisor if divisor > 0.0 else np.zeros(total.shape)

    def _blocks(self, updates: Model, base: Model | None = None) -> Iterator[tuple[slice, FloatArray]]:
        """Parts of updates, shape (k, w), each with its columns in a row."""
        for name, (begin, shape) in self._places.items():
            values = updates[name].reshape(updates[name].shape[0], math.prod(shape))
            for low in range(0, values.shape[1], _BLOCK):
                update = values[:, low : low + _BLOCK].astype(np.float64)
                if base is not None:
                    update -= base[name].reshape(-1)[low : low + _BLOCK]
                yield slice(begin + low, begin + low + update.shape[1]), update

    def _by_name(self, rows: FloatArray) -> Model:
        """Rows, shape (..., d), as arrays by name."""
        return {
            name: rows[..., begin : begin + math.prod(shape)].reshape((*rows.shape[:-1], *shape))
            for name, (begin, shape) in self._places.items()
        }

    def usable(self, updates: Model, num: int, *, base: Model | None = None) -> BoolArray:
        """Which of some updates are finite, in the table's numbers too, shape (k,); arguments as in :meth:`step`."""
        most = float(np.finfo(self.memory.dtype).max)
        good = np.ones(num, np.bool_)
        for _, update in self._blocks(updates, base):
            good &= np.abs(update).max(axis=1) <= most
        return good

    # ------------------------------------------------------------------ steps

    def _corrected(
        self, rows: IntArray, update: FloatArray, columns: slice, divisor: float, weights: FloatArray | None
    ) -> FloatArray:
        """What updates of the clients of some rows become; where nothing is known, 0 or the mean is their row."""
        mean = self._mean(columns, divisor)
        row: FloatArray = self._rows[rows, columns].astype(np.float64)
        if self.memory.unknown == "left-out":
            row[self._samples[rows] == 0.0] = mean
        weight: FloatArray | float = 1.0 if weights is None else np.asarray(weights)[:, None]
        return corrected(update, row, mean, share=self.memory.share, weight=weight)

    def rewritten(self, clients: IntArray, updates: Model, weights: FloatArray | None = None) -> Model:
        """What each update becomes by the rule "difference", for an engine that averages replies; nothing is learned.

        Args:
            clients: Their clients, shape (k,).
            updates: Updates, shape (k, ...) by name.
            weights: c, shape (k,), >= 0; None for 1.
        """
        rows, divisor = self._row_of(clients), self._divisor()
        found = np.empty((rows.shape[0], self._total.shape[0]))
        for columns, update in self._blocks(updates):
            found[:, columns] = self._corrected(rows, update, columns, divisor, weights)
        return self._by_name(found)

    def step(
        self,
        clients: IntArray,
        updates: Model,
        num_samples: IntArray | FloatArray,
        *,
        base: Model | None = None,
        weights: FloatArray | None = None,
        shares: FloatArray | None = None,
    ) -> Model:
        """Return the direction of a step, in brackets above, and remember the updates.

        Args:
            clients: Their clients, shape (k,).  Updates that share a row are remembered by their mean.
            updates: Updates that are finite, shape (k, ...) by name.
            num_samples: Their samples, shape (k,), > 0.
            base: The model that these clients were sent, if ``updates`` are their models; None for updates.
            weights: c, shape (k,), >= 0; None for 1.
            shares: a, shape (k,), sum 1; None for shares of the samples.

        Returns:
            The direction, float64, by name; zeros without any client: then the model stays.
        """
        memory, num = self.memory, clients.shape[0]
        direction = np.zeros(self._total.shape)
        self._steps += 1
        if num:
            share = num_samples / num_samples.sum() if shares is None else shares
            own_rows, divisor = self._row_of(clients), self._divisor()
            rows, place = np.unique(own_rows, return_inverse=True)
            samples = np.bincount(place, num_samples) / np.bincount(place)
            before, after = self._weight[rows], samples * self._sharing[rows]
            gather = (place == np.arange(rows.shape[0])[:, None]) * num_samples
            gather = gather / gather.sum(axis=1, keepdims=True)
            order = np.argsort(place) if rows.shape[0] == num else None  # of updates that share no row
            for columns, update in self._blocks(updates, base):
                if memory.rule == "difference":
                    direction[columns] = share @ self._corrected(own_rows, update, columns, divisor, weights)
                old = self._rows[rows, columns].astype(np.float64)
                kept = (gather @ update if order is None else update[order]).astype(memory.dtype)
                self._rows[rows, columns] = kept
                self._total[columns] += after @ kept.astype(np.float64) - before @ old
            self._samples[rows], self._learned[rows] = samples, self._steps
            if memory.rule == "mean":
                direction = memory.share * self._mean(slice(None), self._divisor())
            self._cancel(divisor)
            if memory.longest_age:
                self._drop(np.flatnonzero((self._samples > 0.0) & (self._steps - self._learned >= memory.longest_age)))
        return self._by_name(direction)

    # ------------------------------------------------------------------ members and files

    def forget(self, clients: IntArray) -> None:
        """Forget the rows of some clients; with groups, all that is in a shared row."""
        self._drop(np.unique(self._row_of(clients)))

    def _drop(self, rows: IntArray) -> None:
        weight, divisor = self._weight, self._divisor()
        for row in rows:
            self._total -= weight[row] * self._rows[row].astype(np.float64)
            self._rows[row] = 0
        self._samples[rows] = 0.0
        self._cancel(divisor)

    def _cancel(self, divisor: float) -> None:
        """Sum again where the divisor was so much greater before that its digits hide what is left."""
        if divisor > _HIDES * self._divisor():
            self._sum()

    def hold(self, here: BoolArray) -> None:
        """Take the clients that are here, shape (numbers,), for all there are, with room for those that join.

        The row of one that has left must be forgotten before its number is another's.
        """
        if len(here) > len(self._here):
            self._grow(len(here))
        self._here = here
        if self.memory.groups:  # others share a row than before
            self._sum()

    def _grow(self, num_clients: int) -> None:
        count = min(self.memory.groups or num_clients, num_clients)
        if self.memory.groups and count > self._rows.shape[0]:  # other clients would share rows
            raise ConfigurationError(
                f"the table has {self._rows.shape[0]} rows for {self._here.shape[0]} clients, fewer than groups = "
                f"{self.memory.groups}; expected at least as many clients as groups from the beginning"
            )
        rows, have = self._empty(count), self._rows.shape[0]
        rows[:have], self._rows = self._rows, rows
        self._samples = np.concatenate((self._samples, np.zeros(count - have)))
        self._learned = np.concatenate((self._learned, np.zeros(count - have, np.int64)))

    def _sum(self) -> None:
        """The weighted sum of the rows, from the rows."""
        self._total[:] = 0.0
        for row, weight in enumerate(self._weight):
            if weight > 0.0:
                self._total += weight * self._rows[row].astype(np.float64)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that is known, to save it: arrays that the table goes on to use."""
        state = {"samples": self._samples, "learned": self._learned, "steps": np.array([self._steps])}
        return {"rows": self._rows, "total": self._total, **state}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`arrays` returned.

        Raises:
            StateFileError: If it belongs to another table, or is not finite.
        """
        for name, own in self.arrays().items():
            found = arrays.get(name)
            if found is None or found.shape != own.shape or found.dtype != own.dtype or not np.isfinite(found).all():
                raise StateFileError(
                    f"{name!r} of the update memory is missing, damaged or of another table; expected {own.dtype} of "
                    f"shape {own.shape}"
                )
        for name in ("rows", "total", "samples", "learned"):
            self.arrays()[name][...] = arrays[name]
        self._steps = int(arrays["steps"][0])
