"""Compiled functions, without the compiler until one is called.

:func:`njit` is Numba's, put off: a module with kernels is imported without Numba, which takes half a second to load,
and a kernel is compiled when it is first called.  Numba's cache keeps it for the next process.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import RLock, local
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

INTERPRETED_ROWS = 50_000
"""Up to this many rows are interpreted faster than the compiler is loaded and a kernel compiled."""


class _Interpreting(local):
    now = False


_interpreting = _Interpreting()

_LOCK = RLock()
_listeners: list[Callable[[], None]] = []
_is_listening = False


class Kernel:
    """A function that is compiled when it is first called; other kernels that it calls are globals of its module."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        """Remember what to compile."""
        self.py_func = function
        # Nothing calls a kernel through a C pointer: that wrapper would cost a twentieth of the compiler's time.
        self._options = options | {"no_cfunc_wrapper": True}
        self._dispatcher: Any = None
        self._rows = 0
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function; or the source, for a kernel whose source runs."""
        return (self.py_func if _interpreting.now else self.dispatcher())(*arguments)

    def interpret(self, *arguments: Any) -> Any:
        """Run the source, and that of the kernels that it calls; floats behave as in compiled code."""
        _interpreting.now = True
        try:
            with np.errstate(all="ignore"):
                return self.py_func(*arguments)
        finally:
            _interpreting.now = False

    def dispatcher(self) -> Any:
        """Numba's own object; from now on the module uses it directly, for this kernel and those that it calls."""
        if self._dispatcher is None:
            with _LOCK:
                if self._dispatcher is None:
                    self._dispatcher = self._made()
        return self._dispatcher

    def _made(self) -> Any:
        import numba

        _listen()
        names = self.py_func.__globals__
        for name in self.py_func.__code__.co_names:
            called = names.get(name)
            if isinstance(called, Kernel) and called is not self:
                names[name] = called.dispatcher()
        try:
            if not _has_place():
                raise RuntimeError("no locator available")
            made = numba.njit(**self._options)(self.py_func)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            _warn_once()
            made = numba.njit(**self._options | {"cache": False})(self.py_func)
        # A constant among the arguments is a type of its own to Numba, and would have the kernel compiled once more.
        template = made.get_call_template
        made.get_call_template = lambda args, kws: template(tuple(map(numba.types.unliteral, args)), kws)
        if names.get(self.py_func.__name__) is self:
            names[self.py_func.__name__] = made
        return made


@functools.cache
def _has_place() -> bool:
    """Whether there is a folder for Numba's cache; without a home it would make one called ~, wherever it is."""
    if "XDG_CACHE_HOME" in os.environ or os.path.expanduser("~") != "~":  # noqa: PTH111 (Path raises an error)
        return True
    given = Path(os.environ.get("NUMBA_CACHE_DIR", os.devnull))
    with contextlib.suppress(OSError):
        given.mkdir(parents=True, exist_ok=True)
    return given.is_dir() and os.access(given, os.W_OK)


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        "there is no place to keep compiled code, so every process compiles it again, which takes seconds; "
        "NUMBA_CACHE_DIR names a folder that may be written to",
        RuntimeWarning,
        stacklevel=2,
    )


def njit(**options: Any) -> Callable[[F], F]:
    """Numba's decorator of the same name, which does its work later."""
    return lambda function: Kernel(function, options)  # type: ignore[return-value]


def interpreted_at_first(kernel: F, rows: int) -> F:
    """What to call: the source as long as few rows were met, for a small federation's first run; then the kernel.

    Both give the same, bit for bit, if the kernel adds, subtracts, multiplies, compares, divides by elements of arrays,
    takes square roots and calls :mod:`math` alone: ``**`` and NumPy's sums round otherwise when compiled.
    """
    if isinstance(kernel, Kernel):
        kernel._rows += rows
        if kernel._dispatcher is None and kernel._rows <= INTERPRETED_ROWS:
            return kernel.interpret  # type: ignore[return-value]
    return kernel


def when_compiling(call: Callable[[], None]) -> None:
    """Have a function called once, when a kernel is not in the cache and has to be compiled."""
    _listeners.append(call)


def _listen() -> None:
    global _is_listening
    if _is_listening:
        return
    _is_listening = True
    from numba.core import event

    class Listener(event.Listener):
        """Under the compiler's lock; kernels that are called compile within."""

        depth, collects = 0, False

        def on_start(self, event: Any) -> None:
            while _listeners:
                _listeners.pop()()
            if self.depth == 0:  # the compiler keeps nearly all that it makes: to look for garbage costs a tenth
                self.collects = gc.isenabled()
                gc.disable()
            self.depth += 1

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0 and self.collects:
                gc.enable()

    event.register("numba:compile", Listener())
