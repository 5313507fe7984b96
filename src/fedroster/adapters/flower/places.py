"""Free places in Flower: a node that has answered leaves its place, which is filled at once with the newest model.

A round of the strategy lasts until as many exchanges have ended as there are places; others go on beyond it.  All of
its replies then hold the model that came out, and so does their average: the strategy's own ``start`` runs unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from numpy.typing import NDArray

from fedroster.adapters.flower.exchange import REST_S, Flight, log, readdressed
from fedroster.adapters.flower.replies import ReplyCheck, arrays_of, cut, samples_of
from fedroster.adapters.flower.roster import Roster
from fedroster.aggregation.places import FreePlaces
from fedroster.core.errors import ConfigurationError, StateFileError
from fedroster.core.problem import Status
from fedroster.core.state import load_arrays, save_arrays
from fedroster.engine.outcomes import OpenRound, Reply
from fedroster.engine.remembered import RememberedUpdates, digest_of
from fedroster.engine.replies import outweighing

Arrays = dict[str, NDArray[Any]]
_KIND, _FILE = "flower-places", "places.npz"
_COMPARED = 3
"""The first answers of a process are compared with each other, so many at once; later ones with those before."""


@dataclass(slots=True)
class Out:
    """A round whose messages are under way, by the node's name, and replies with errors.

    In free places ``base`` is the model that was sent, and ``version`` how often that had changed before.
    """

    round: OpenRound
    flights: dict[str, Flight] = field(default_factory=dict)
    errors: list[Message] = field(default_factory=list)
    base: Arrays = field(default_factory=dict)
    version: int = 0


@dataclass(slots=True)
class _Update:
    """An answer that is not in the model yet; ``weight`` is the decision's, NaN for one by samples."""

    name: str
    arrays: Arrays
    samples: float
    version: int
    weight: float


class FilledPlaces:
    """The loop that fills places, takes a step for each full buffer of answers, and keeps the model.

    Model, buffer and what is remembered are one snapshot in the run's folder, written before an answer is booked.
    ``round`` counts the strategy's rounds that are done, before a restart, too, and ``last`` has the clients whose
    exchanges ended in the last one.
    """

    def __init__(
        self,
        places: FreePlaces,
        roster: Roster,
        check: ReplyCheck,
        updates: RememberedUpdates | None,
    ) -> None:
        """Begin, or go on with what is in the folder of the desk's rounds; a StateFileError if that is damaged."""
        self._places = places
        self._desk = roster.desk
        self._roster = roster
        self._exchange = roster.exchange
        self._check = check
        self._updates = updates
        folder = self._desk.rounds.folder
        self._path = folder and folder / _FILE
        self._model: Arrays = {}
        self._arrays: dict[str, Array] = {}  # the same, once for all messages that are under way
        self._version = self.round = self._ended = 0
        self._size = self._desk.selector.cohort_size
        self._samples: dict[str, float] = {}
        self._buffer: list[_Update] = []
        self._out: list[Out] = []
        self._num_judged = 0
        self._was_played = False
        self._is_new = True
        self._next_s = -math.inf  # when to fill places; before, no node was idle
        self.last: set[str] = set()
        if self._path is not None and self._path.exists():
            self._load(self._path)

    def newest(self, arrays: ArrayRecord) -> ArrayRecord:
        """The model that was kept last, in place of one that an app begins with; that one if there is none.

        Raises:
            StateFileError: If the kept one has other arrays.
        """
        for key, array in self._model.items():
            if key not in arrays or arrays[key].numpy().shape != array.shape:
                raise StateFileError(f"{str(self._path)!r} holds another model; expected another folder")
        return self._filled(arrays)

    # ---------------------------------------------------------------- a round

    def play(self, sent: Arrays, model_bit: float, size: int, send: Callable[[OpenRound], Out]) -> list[Message]:
        """Play a round of the strategy, which sends a model, with so many places.

        Raises:
            ConfigurationError: If the strategy has not gone on with the model that its replies held.
        """
        if self._ended >= min(self._size, size):  # else the one that was interrupted goes on
            self._ended = 0
        self._size = size
        self._begin(sent)
        if self._is_new:
            self._add(map(send, self._desk.fill_again(self._roster)))
        self._is_new = False
        replies: list[Message] = []
        errors: list[Message] = []
        self.last = set()
        while self._ended < size:
            complete = self._complete()
            held = self._held(complete)
            if ready := [out for out in complete if out not in held]:
                if self._num_judged >= _COMPARED:
                    ready = ready[: size - self._ended]
                for out, reply in self._judged(ready):
                    self.last |= out.round.choice.clients.keys()
                    errors += out.errors
                    replies += [] if reply is None else [reply]
                self._next_s = -math.inf
                continue
            free = size - len(self._out) + len(held)
            now_s = self._exchange.clock.now()
            if free > 0 and now_s >= self._next_s:
                at_work = {name for out in self._out for name in out.round.choice.clients}
                rounds = self._desk.fill(self._roster, model_bit, places=free, at_work=at_work)
                self._next_s = -math.inf if rounds else now_s + REST_S
                self._add(map(send, rounds))
                continue
            self._wait(len(complete), self._next_s if free > 0 else math.inf)
        if reply is None:  # else it was kept with this round
            self._save([0, "", 0.0])
        self._was_played = bool(replies)  # without any, a strategy keeps the model that it had
        cut([self._fill(reply.content) for reply in replies])
        return [*replies, *errors]

    def _begin(self, sent: Arrays) -> None:
        """Begin with the strategy's model if there is none yet; else it must have gone on with ours."""
        if not self._model:
            self._keep(sent)
        for key, array in sent.items() if self._was_played else ():
            if array.dtype.kind == "f" and array.size:
                most = np.abs(self._model[key]).max() * np.finfo(array.dtype).eps
                if np.abs(array - self._model[key]).max() > 16.0 * self._size * most:
                    raise ConfigurationError(
                        "the strategy changed the model by more than the average of its replies, and in free places "
                        "each answer has changed it already; expected one that only averages, such as FedAvg"
                    )

    def renewed(self, messages: Sequence[Message]) -> list[Message]:
        """Messages of the strategy, with the model of this moment."""
        return [
            readdressed(message, message.metadata.dst_node_id, self._fill(RecordDict({**message.content})))
            for message in messages
        ]

    def _fill(self, content: RecordDict) -> RecordDict:
        """Put the model of this moment into a content."""
        for name, record in content.array_records.items():
            content[name] = self._filled(record)
        return content

    def _filled(self, record: ArrayRecord) -> ArrayRecord:
        return ArrayRecord({key: self._arrays.get(key, array) for key, array in record.items()})

    def _add(self, sent: Iterable[Out]) -> None:
        for out in sent:
            out.base = self._model
            out.version = self._version
            self._out.append(out)

    def _complete(self) -> list[Out]:
        """Exchanges that have ended, the first one first."""
        found = [out for out in self._out if self._desk.is_complete(out.round)]
        return sorted(found, key=lambda out: out.round.sent_s + out.round.settled_s)

    def _held(self, complete: Sequence[Out]) -> list[Out]:
        """Those answers that wait for more to be compared with, as long as more can come."""
        answered = [out for out in complete if out.round.usable]
        more = self._next_s == -math.inf or len(answered) < len(self._out)
        return answered if more and self._num_judged + len(answered) < _COMPARED else []

    def _wait(self, num_complete: int, until_s: float) -> None:
        """Wait until another exchange has ended, or until so late."""
        flights: list[Flight] = []
        now_s = self._exchange.clock.now()
        for out in self._out:
            flights += [flight for flight in out.flights.values() if flight.message_id in self._exchange.open]
            if out.round.ending.until_s > now_s:
                until_s = min(until_s, out.round.ending.until_s)
        if flights:
            self._exchange.wait(flights, until_s, lambda: len(self._complete()) > num_complete)
        else:
            self._exchange.rest(until_s - now_s)

    def _judged(self, done: Sequence[Out]) -> list[tuple[Out, Message | None]]:
        """Take the answers of exchanges that have ended into the model; with each, its reply if it is used."""
        status = {name: how for out in done for name, how in out.round.outcomes.status.items()}
        usable = {reply.name: reply for out in done for reply in out.round.usable}
        replies = {name: reply for name, reply in usable.items() if status[name] is Status.COMPLETED}
        sent = {name: flight.message for out in done for name, flight in out.flights.items()}
        wrong = self._check.odd({name: (sent[name], reply.content) for name, reply in replies.items()})
        self._num_judged += len(replies)

        def odd(usable: Sequence[Reply]) -> dict[str, str]:
            return {each.name: wrong[each.name] for each in usable if each.name in wrong}

        found: list[tuple[Out, Message | None]] = []
        for out in done:
            (name,) = out.round.choice.clients
            used = None if name in wrong else replies.get(name)
            self._ended += 1
            self.round += self._ended == self._size
            if used is not None:
                self._take(out, used)
            self._out.remove(out)
            self._desk.close(out.round, odd)
            found.append((out, None if used is None else used.content))
        return found

    # ---------------------------------------------------------------- the model

    def _take(self, out: Out, reply: Reply) -> None:
        """Let an answer change the model, and keep it."""
        samples = float(samples_of(reply.content, self._check.weight_key))
        self._samples[digest_of(reply.name)] = samples
        if self._check.check is not None:  # samples that are too many count no more, nor updates that wait with them
            doubted = outweighing(self._samples)
            self._samples = {digest: count for digest, count in self._samples.items() if digest not in doubted}
            self._buffer = [each for each in self._buffer if digest_of(each.name) not in doubted]
        weight = math.nan if reply.weight is None else reply.weight
        update: Arrays = {}
        model = self._model.copy()
        for key, array in arrays_of(reply.content.content).items():
            if key not in model:
                continue
            if model[key].dtype.kind == "f":
                update[key] = array.astype(np.float64) - out.base[key]
            else:
                model[key] = array
        self._model = model
        self._buffer.append(_Update(reply.name, update, samples, out.version, weight))
        if len(self._buffer) >= self._places.buffer:
            self._change()
        self._keep(self._model)
        self._save([out.round.choice.round, digest_of(reply.name), reply.time_s])

    def _keep(self, model: Arrays) -> None:
        self._model = model
        self._arrays = {key: Array(np.asarray(array)) for key, array in model.items()}

    def _change(self) -> None:
        r"""Take the step of a full buffer: :class:`~fedroster.aggregation.places.FreePlaces` has the equation."""
        buffer = self._buffer
        updates = self._updates
        model = self._model
        counts = np.array([each.samples for each in buffer]) / np.mean(list(self._samples.values()))
        given = np.array([each.weight for each in buffer])
        changes = self._version - np.array([each.version for each in buffer])
        weights = self._places.weights(np.where(np.isnan(given), counts, given), changes)
        if updates is not None:
            updates.begin(model, self._desk.selector.clients)
        total = {key: np.zeros(array.shape) for key, array in model.items() if array.dtype.kind == "f"}
        nothing = dict.fromkeys(model, 0.0)
        for each, weight in zip(buffer, weights, strict=True):
            if updates is None:
                moved = {key: weight * update for key, update in each.arrays.items()}
            else:
                parts = {"samples": each.samples, "weight": float(weight)}
                rewritten = updates.rewritten(each.name, each.arrays, base=nothing, **parts)
                moved = {key: array - model[key] for key, array in rewritten.items()}
            for key, array in moved.items():
                total[key] += array
        self._version += 1
        if updates is not None:
            updates.end(self._version, [each.name for each in buffer])
        for key, array in total.items():
            total[key] = (model[key] + array / self._size).astype(model[key].dtype)
        self._model = model | total
        self._buffer = []

    def _save(self, told: list[Any]) -> None:
        """Keep all this, and of which round and client the last answer is: it is booked after this returns."""
        if self._path is None:
            return
        arrays = {f"model.{key}": array for key, array in self._model.items()}
        parts = []
        for number, each in enumerate(self._buffer):
            parts.append([digest_of(each.name), each.samples, each.version, each.weight])
            arrays |= {f"{number}.{key}": array for key, array in each.arrays.items()}
        header = {
            "version": self._version,
            "round": [self.round, self._ended, self._size],
            "samples": self._samples,
            "told": told,
            "buffer": parts,
        }
        save_arrays(self._path, arrays, header, kind=_KIND, private=True)

    def _load(self, path: Path) -> None:
        """Go on with what is kept; an answer that is in the model and was not booked is booked."""
        arrays, header = load_arrays(path, kind=_KIND)
        self._keep(_part(arrays, "model."))
        self._version = header["version"]
        self.round, self._ended, self._size = header["round"]
        self._samples = header["samples"]
        selector = self._desk.selector
        name_of = {digest_of(str(client)): str(client) for client in selector.clients}
        self._check.sizes.seen(
            "weight", {name_of[digest]: samples for digest, samples in self._samples.items() if digest in name_of}
        )
        for number, (digest, *rest) in enumerate(header["buffer"]):
            if digest in name_of:
                self._buffer.append(_Update(name_of[digest], _part(arrays, f"{number}."), *rest))
        number, digest, time_s = header["told"]
        name = name_of.get(digest)
        if name in selector.open_rounds().get(number, ()):
            selector.observe(number, times_s={name: time_s}, again="ignore")
        log.info("the model goes on after %d changes, in %d rounds", self._version, self.round)


def _part(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
