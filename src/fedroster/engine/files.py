"""The folder of a run: its selector with the round that is under way.  One server process holds it.

A decision is on the disk before a client is called.  It is appended to the selector's file, with everything that was
learned until then: one flush of the disk, where a file that is replaced takes several.
"""

from __future__ import annotations

import logging
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedroster.core.errors import ConfigurationError, FedrosterError, StateFileError
from fedroster.core.locks import FolderLock
from fedroster.core.state import cut_torn, load_arrays
from fedroster.record import rebuilt
from fedroster.selector import Selector, append_state, kind_of

_log = logging.getLogger(__name__)

_SELECTOR_FILE = "selector.npz"
_ROUND = "engine_round"
_MOST_ROUNDS = 2**53


@dataclass(slots=True)
class Round:
    """The round that was begun last.

    Attributes:
        number: The selector's round number; 0 before the first.
        clients: The engine's id of each chosen node, by its name; 0 where it is not known.
        is_done: Whether training has gone on since: the round's aggregation is through.
        edges: Edge server of each chosen node, where there are any.
        bandwidth_bps: Bandwidths that the server has measured, by the node's name, bit/s.
    """

    number: int = 0
    clients: dict[str, int] = field(default_factory=dict)
    is_done: bool = True
    edges: dict[str, str] = field(default_factory=dict)
    bandwidth_bps: dict[str, float] = field(default_factory=dict)

    @classmethod
    def unpack(cls, saved: Any) -> Round:
        """Load what the header of the selector's file keeps: the attributes by name.

        Raises:
            StateFileError: If it is damaged.
        """
        try:
            number, clients = saved["number"], saved["clients"]
            is_number = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < _MOST_ROUNDS
            if not is_number or not isinstance(saved["is_done"], bool):
                raise ValueError(f"round {number!r}, is_done {saved['is_done']!r}")
            if not all(isinstance(node_id, int) for node_id in clients.values()):
                raise ValueError("ids of nodes are no integers")
            return cls(
                number,
                dict(clients),
                saved["is_done"],
                {str(name): str(edge) for name, edge in saved["edges"].items()},
                {str(name): float(bps) for name, bps in saved["bandwidth_bps"].items() if 0.0 < bps < math.inf},
            )
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            raise StateFileError(f"its {_ROUND} is damaged ({error!r})") from error


def saved_round(folder: str | Path, *, kind: str = "selector") -> Round:
    """The round that a folder holds; none if nothing was saved.

    Args:
        folder: The folder.
        kind: Kind of the selector's file.

    Raises:
        StateFileError: If the file is damaged.
    """
    file = Path(folder) / _SELECTOR_FILE
    if not file.exists():
        return Round()
    _, header = load_arrays(file, kind=kind)
    try:
        return Round.unpack(header[_ROUND]) if _ROUND in header else Round()
    except StateFileError as error:
        raise StateFileError(f"{str(file)!r}: {error}") from error


class StateFolder:
    """Where a run is kept; without a path, nowhere."""

    def __init__(self, path: str | Path | None) -> None:
        """Make the folder, if there is a path, and hold it.

        Raises:
            InUseError: If another process holds it.
        """
        self._path = None if path is None else Path(path)
        self._lock: FolderLock | None = None
        self._later: tuple[Selector, Round] | None = None
        if self._path is not None:
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(self._path)

    def release(self) -> None:
        """Save what was put off, and release the folder."""
        self.finish()
        if self._lock is not None:
            self._lock.release()

    def resume(self, fresh: Selector) -> tuple[Selector, Round]:
        """Read what was saved.

        A :class:`~fedroster.Record` of the fresh selector goes on in its log, which is ahead of what was saved by a
        decision or an answer if the process was killed between the two: that is booked first.

        Args:
            fresh: The selector that the operator asks for now.

        Returns:
            The saved selector and its last round; the fresh one and none when nothing was saved.

        Raises:
            LogFileError: If the log of its record is that of another run.
            ConfigurationError: If the saved selector has another cohort size, number of features or budgets.
            StateFileError: If a file is damaged or belongs to another policy.
        """
        if self._path is None:
            return fresh, Round()
        if (file := self._path / _SELECTOR_FILE).exists():
            if torn := cut_torn(file):
                _log.warning("%s ended in the middle of a state: %d bytes are cut off", file, torn)
            selector = type(fresh).load(file, fresh.policy, observers=fresh.observers, **fresh.options)
        else:
            found = rebuilt(fresh)  # it was killed before it was saved for the first time
            if found is None:
                return fresh, Round()
            selector = found
        _check_same(fresh, selector, str(self._path))
        number = selector.round
        round_ = saved_round(self._path, kind=kind_of(selector))
        if round_.number != number:  # a record knew of a later one: its cohort is all that have not answered
            open_ = map(str, selector.open_rounds().get(number, ()))
            round_ = Round(number, dict.fromkeys(open_, 0), is_done=False, bandwidth_bps=round_.bandwidth_bps)
        if not set(round_.clients) <= set(map(str, selector.clients)):
            raise StateFileError(f"{str(file)!r} has a round with nodes that are no members of the selector")
        return selector, round_

    def save(self, selector: Selector, round_: Round) -> None:
        """Save the selector and the round that was begun last; both are on the disk when this returns."""
        if self._path is not None:
            append_state(selector, self._path / _SELECTOR_FILE, {_ROUND: asdict(round_)})
        self._later = None

    def save_later(self, selector: Selector, round_: Round) -> None:
        """Save both with the next decision, or in :meth:`finish`."""
        self._later = selector, round_

    def finish(self) -> None:
        """Save what was put off: a run that ends by itself keeps the answers of its last round."""
        if self._later is not None:
            try:
                self.save(*self._later)
            except (FedrosterError, OSError) as error:
                _log.warning("the answers of the last round are not saved: %s", error)


def _check_same(fresh: Selector, saved: Selector, where: str) -> None:
    """Refuse to go on with a saved selector that is not what the operator asks for now."""
    for name in ("budgets", "cohort_size", "num_features"):
        now, before = getattr(fresh, name, None), getattr(saved, name, None)
        if now is not None and now != before:
            what = f"{name} are" if name == "budgets" else f"{name} is"
            raise ConfigurationError(
                f"{what} {now}, and the selector saved in {where!r} has {before}; expected the same, or another folder"
            )
