r"""Weights and an update memory behind an engine: replies are rewritten, so that whatever averages them takes a step.

A reply :math:`x + \Delta_k` becomes :math:`x + c_k (\Delta_k - s\, y_k) + s \sum_n p_n y_n`
(:mod:`fedroster.aggregation.memory`).  The average of such replies, by the samples that the rows count by, is the model
after that step.  With :math:`c_k = w_k \frac{\sum_j n_j}{n_k}` it applies a decision's weights, without a memory too:
:math:`x + \sum_k w_k \Delta_k`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedroster.aggregation.memory import UpdateMemory, UpdateTable
from fedroster.core.errors import ConfigurationError, StateFileError
from fedroster.core.state import load_arrays, remove_leftovers, save_arrays
from fedroster.engine.replies import outweighing

_KIND = "update"

Arrays = dict[str, NDArray[Any]]


def factors(weights: Sequence[float | None], samples: Sequence[float]) -> list[float]:
    """C of each reply, by its weight, None for c = 1, and by what it counts in the engine's average, n."""
    total = sum(samples)
    return [
        1.0 if weight is None else weight * total / count if count else 0.0
        for weight, count in zip(weights, samples, strict=True)
    ]


def scaled(model: Mapping[str, Any], reply: Mapping[str, Any], factor: float) -> Arrays:
    """What a reply to a model becomes without a memory: its arrays of floats that were sent."""
    return {
        key: (model[key] + factor * (array.astype(np.float64) - model[key])).astype(array.dtype)
        for key, array in _floats(reply, model).items()
    }


class RememberedUpdates:
    """The last update of each member, and what replies become by it.

    In a folder each update is a file, ``ROUND-CLIENT.npz`` with a digest of the client's name, that says from which
    model it was trained.  So table and model are of one step after a restart: updates that were trained from the model
    with which the engine goes on, or later, are not in it, and not in the table.
    """

    _table: UpdateTable  # since the first round

    def __init__(self, memory: UpdateMemory, folder: Path | None = None, *, is_judged: bool = True) -> None:
        """Begin, or go on with what is in ``folder``; None to keep nothing.

        Where samples are judged, an update that counts too much is forgotten as soon as enough others are known.

        Raises:
            ConfigurationError: If the memory's step is no average of replies.
        """
        if memory.rule != "difference":
            raise ConfigurationError(f"rule is {memory.rule!r}, whose step is no average of replies; use 'difference'")
        self._memory = memory
        if folder is not None:
            remove_leftovers(folder)
        self._folder = folder
        self._is_judged = is_judged
        self._samples: dict[str, float] = {}  # by digest
        self._row: dict[str, int] = {}  # by digest
        self._free: list[int] = []  # rows of those that left
        self._model: Arrays = {}
        self._held: dict[str, list[tuple[Arrays, float]]] = {}  # of one step; a client may have several

    def begin(self, model: Mapping[str, Any], members: Collection[object]) -> None:
        """A round begins with a model; clients that are no members any more are forgotten.

        Raises:
            ConfigurationError: If the table would be too large.
            StateFileError: If an update on the disk is damaged, or of another model.
        """
        self._model = {str(name): np.asarray(array) for name, array in model.items()}
        self._held = {}
        files = self._files()
        names = {digest_of(str(name)) for name in members}
        if not hasattr(self, "_table"):
            known = sorted(names | {file.stem[10:] for file in files})
            self._row = {digest: row for row, digest in enumerate(known)}
            self._table = UpdateTable(self._memory, self._model, len(known))
            self._load(files)
        gone = self._row.keys() - names
        self._forget(gone)
        self._free += [self._row.pop(digest) for digest in sorted(gone)]
        self._seat(names)
        for file in files:
            if file.stem[10:] not in names:
                file.unlink(missing_ok=True)

    def rewritten(
        self,
        name: str,
        reply: Mapping[str, Any],
        *,
        samples: float = 1.0,
        weight: float = 1.0,
        base: Mapping[str, Any] | None = None,
    ) -> Arrays:
        """What a reply to the model becomes, its arrays of floats; :meth:`end` remembers it.

        Args:
            name: The client.
            reply: Its model; one whose update is not finite is not remembered, and becomes nothing.
            samples: What it counts in the average, > 0.
            weight: c, >= 0.
            base: The model that it was trained from, where that is an older one; None for the round's.
        """
        returned = _floats(reply, self._model)
        digest = digest_of(name)
        if digest not in self._row:  # it left while it was at work
            self._seat({digest})
        base = self._model if base is None else base
        update = {  # what came as no float, a counter, has not moved
            key: np.asarray(returned.get(key, base[key]), np.float64)[None] - base[key] for key in self._model
        }
        if not self._table.usable(update, 1)[0]:
            return {}
        self._held.setdefault(digest, []).append((update, samples))
        rows = np.array([self._row[digest]])
        moved = self._table.rewritten(rows, update, np.array([weight]))
        return {key: (self._model[key] + moved[key][0]).astype(array.dtype) for key, array in returned.items()}

    def end(self, number: int, used: Iterable[str], saved: int | None = None) -> None:
        """Remember the updates of a round that are used; they are on the disk when this returns.

        The model after round ``saved`` is the oldest that an engine may go on from; None for the last one's.
        """
        found = {digest: _mean(self._held[digest]) for digest in sorted(self._held.keys() & set(map(digest_of, used)))}
        self._learn(found)
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for digest, (update, samples) in found.items():
            arrays = {key: array.astype(self._memory.dtype) for key, array in update.items()}
            header = {"samples": samples, "sent": self._sent()}
            save_arrays(self._folder / f"{number:09d}-{digest}.npz", arrays, header, kind=_KIND, private=True)
            for old, later in pairwise(self._files(digest)):
                if int(later.stem[:9]) <= (number - 1 if saved is None else saved):
                    old.unlink(missing_ok=True)

    def _seat(self, digests: Collection[str]) -> None:
        """Give a row to each that has none."""
        for digest in sorted(digests - self._row.keys()):
            self._row[digest] = self._free.pop() if self._free else len(self._row)
        here = np.zeros(len(self._row) + len(self._free), np.bool_)
        here[list(self._row.values())] = True
        self._table.hold(here)

    def _learn(self, found: Mapping[str, tuple[Arrays, float]]) -> None:
        updates = {key: np.concatenate([each[key] for each, _ in found.values()]) for key in self._model if found}
        rows = np.array([self._row[digest] for digest in found], np.int64)
        self._table.step(rows, updates, np.array([samples for _, samples in found.values()]))
        self._samples |= {digest: samples for digest, (_, samples) in found.items()}
        if self._is_judged:
            self._forget(outweighing(self._samples))

    def _forget(self, digests: Collection[str]) -> None:
        gone = np.array([self._row[digest] for digest in digests], np.int64)
        self._table.forget(gone[self._table.known[gone]])
        self._samples = {digest: samples for digest, samples in self._samples.items() if digest not in digests}

    def _sent(self) -> str:
        # Without counters: an engine averages them to floats, and an app may begin again with integers.
        return digest_of(b"".join(array.tobytes() for array in self._model.values() if array.ndim))

    def _files(self, digest: str = "*") -> list[Path]:
        """Updates on the disk, the oldest first."""
        return [] if self._folder is None else sorted(self._folder.glob(f"{'[0-9]' * 9}-{digest}.npz"))

    def _load(self, files: list[Path]) -> None:
        """Learn round by round what is on the disk, up to the model that is sent now."""
        sent = self._sent()
        shapes = {key: array.shape for key, array in self._model.items()}
        last = 0
        for number, of_round in groupby(files, key=lambda file: int(file.stem[:9])):
            found = {file.stem[10:]: load_arrays(file, kind=_KIND) for file in of_round}
            if any(header["sent"] == sent for _, header in found.values()):
                for file in files:
                    if int(file.stem[:9]) >= number:
                        file.unlink()
                return
            if any({key: array.shape[1:] for key, array in each.items()} != shapes for each, _ in found.values()):
                raise StateFileError(f"{str(self._folder)!r} has updates of another model; expected another folder")
            for _ in range(number - last - 1):
                self._learn({})  # rows grow older in rounds without an update, too
            self._learn({digest: (each, header["samples"]) for digest, (each, header) in found.items()})
            last = number


def _mean(updates: list[tuple[dict[str, Any], float]]) -> tuple[Arrays, float]:
    """What is remembered of a client's updates in one step, and its samples."""
    total = sum(samples for _, samples in updates)
    mean = {key: sum(samples / total * update[key] for update, samples in updates) for key in updates[0][0]}
    return mean, total / len(updates)


def _floats(reply: Mapping[str, Any], model: Mapping[str, Any]) -> Arrays:
    """Arrays of floats that were sent; counters, as layers for batch normalization have them, stay as they come."""
    found = {str(name): np.asarray(array) for name, array in reply.items()}
    return {name: array for name, array in found.items() if array.dtype.kind == "f" and name in model}


def digest_of(what: str | bytes) -> str:
    """By what files call a client or a model."""
    return blake2b(what.encode() if isinstance(what, str) else what, digest_size=16).hexdigest()
