"""Compiled functions, without the compiler until one is called.

:func:`njit` is Numba's, put off: a module with kernels is imported without Numba, which takes half a second to load,
and a kernel is compiled when it is first called.  Numba's cache keeps it for the next process.
"""

from __future__ import annotations

import contextlib
import functools
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


class Kernel:
    """A function that is compiled when it is first called; kernels that it calls are compiled with it."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        """Remember what to compile."""
        self.py_func = function
        # Nothing calls a kernel through a C pointer: that wrapper would cost a thirtieth of the compiler's time.
        self._options = options | {"no_cfunc_wrapper": True}
        self._compiled: Any = None
        self._rows = 0
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Call the compiled function; or the source, for a kernel whose source runs."""
        return (self.py_func if _interpreting.now else self.compiled())(*arguments)

    def interpret(self, *arguments: Any) -> Any:
        """Run the source, and that of the kernels that it calls; floats behave as in compiled code."""
        _interpreting.now = True
        try:
            with np.errstate(all="ignore"):
                return self.py_func(*arguments)
        finally:
            _interpreting.now = False

    @property
    def is_compiled(self) -> bool:
        """Whether it was called already, otherwise than interpreted."""
        return self._compiled is not None

    def compiled(self) -> Any:
        """Numba's own object; the source where ``NUMBA_DISABLE_JIT`` is set."""
        if self._compiled is None:
            with _LOCK:
                if self._compiled is None:
                    self._compiled = self._made()
        return self._compiled

    @property
    def _numba_type_(self) -> Any:
        """What Numba takes it for in a kernel that calls it: its own object."""
        return self.compiled()._numba_type_

    def _made(self) -> Any:
        import numba

        if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
            return self.interpret
        _listen()
        try:
            if not _has_place():
                raise RuntimeError("no locator available")
            return numba.njit(**self._options)(self.py_func)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            _warn_once()
            return numba.njit(**self._options | {"cache": False})(self.py_func)


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
        if not kernel.is_compiled and kernel._rows <= INTERPRETED_ROWS:
            return kernel.interpret  # type: ignore[return-value]
    return kernel


def when_compiling(call: Callable[[], None]) -> None:
    """Have a function called once, when a kernel is not in the cache and has to be compiled."""
    _listeners.append(call)


@functools.cache
def _listen() -> None:
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            while _listeners:
                _listeners.pop()()

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Listener())
