"""Each call of a selector is whole: one at a time, and no handler of a signal runs in the middle of it.

A handler may raise, as Ctrl-C's does, and so leave a call half done.  Python runs handlers in the main thread only, so
there, while a call is under way, every signal that has a handler in Python is recorded in its place.  The handlers run
when the state is whole again.
"""

from __future__ import annotations

import signal
import threading

# As in ``signal``, without its enums, in a tenth of the time: a call asks 64 times.
from _signal import getsignal as _handler_of  # type: ignore[import-not-found]
from _signal import signal as _handle
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any, Concatenate, ParamSpec, TypeVar

from fedroster.core.errors import InUseError
from fedroster.core.parameters import check_names

P = ParamSpec("P")
R = TypeVar("R")

_SIGNALS = tuple(map(int, signal.valid_signals()))


class _Held:
    """Signals whose handlers wait."""

    __slots__ = ("_handlers", "_met")

    def __init__(self) -> None:
        """Let all of them wait."""
        self._handlers: dict[int, Any] = {}
        self._met: list[tuple[int, FrameType | None]] = []
        try:
            for number in _SIGNALS:
                handler = _handler_of(number)
                if callable(handler):
                    self._handlers[number] = handler
                    _handle(number, self._record)
        except BaseException:  # a handler ran before it was replaced
            self.give_back()
            raise

    def _record(self, number: int, frame: FrameType | None) -> None:
        self._met.append((number, frame))

    def give_back(self) -> None:
        """Put the handlers back, and run those whose signals came; the first error is raised when all have run."""
        error: BaseException | None = None
        is_back = False
        while not is_back:
            try:
                for number, handler in self._handlers.items():
                    _handle(number, handler)
                is_back = True
            except BaseException as raised:  # by one that was back already
                error = error or raised
        while self._met:
            try:
                number, frame = self._met.pop(0)
                self._handlers[number](number, frame)
            except BaseException as raised:
                error = error or raised
        if error is not None:
            raise error


class Calls:
    """Lets one call at a time through.  A copy lets its own calls through."""

    def __init__(self) -> None:
        """Begin without a call."""
        self._lock = threading.Lock()
        self._held: _Held | None = None

    def __reduce__(self) -> tuple[type[Calls], tuple[()]]:
        """Copy nothing: a copy is in no call."""
        return Calls, ()

    def __enter__(self) -> None:
        """Begin a call.

        Raises:
            InUseError: If another one has not ended.
        """
        held = _Held() if threading.current_thread() is threading.main_thread() else None
        if self._lock.acquire(blocking=False):
            self._held = held
            return
        if held is not None:
            held.give_back()
        raise InUseError(
            "this selector is in the middle of another call, of another thread or of one that called back; expected "
            "one call at a time, or a selector for each thread"
        )

    def __exit__(self, *_: object) -> None:
        """End a call, and run the handlers that waited for it."""
        held, self._held = self._held, None
        self._lock.release()
        if held is not None:
            held.give_back()


def whole(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Make a method of an object with ``_calls`` one that is done in full or not at all."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        check_names(method, kwargs)
        with self._calls:
            return method(self, *args, **kwargs)

    return call
