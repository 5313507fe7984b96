"""FLARE's own Collab groups, with sites that are threads of this process."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from nvflare.apis.signal import Signal
from nvflare.collab import collab
from nvflare.collab.api._invocation import _InvocationDispatcher
from nvflare.collab.api.app import ServerApp
from nvflare.collab.api.context import set_call_context
from nvflare.collab.api.exceptions import CollabCallError
from nvflare.collab.api.proxy import Proxy


@dataclass
class Site:
    """A site; ``fate`` gives what its first, second, ... training does, and the last one repeats.

    "ok", "raises", "gone" (its process is killed: the call times out), a number of seconds, or what it returns.
    """

    delay_s: float = 0.01
    fate: tuple[object, ...] = ("ok",)
    fqn: str = ""
    log: list[int] = field(default_factory=list)
    num_running: int = 0
    most_running: int = 0

    def train(self, model, number: int = 0):
        fate = self.fate[min(len(self.log), len(self.fate) - 1)]
        self.log.append(number)
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        try:
            if isinstance(fate, str) and fate == "raises":
                raise ValueError("no data here")
            time.sleep(fate if isinstance(fate, float) else self.delay_s)
            if isinstance(fate, str | float):
                return {name: array + 1.0 for name, array in model.items()}, {"num-examples": 3}
            return fate
        finally:
            self.num_running -= 1


class Wire(_InvocationDispatcher):
    """Calls one site in a thread, as FLARE's cell does in another process."""

    def __init__(self, name: str, site: Site, signal: Signal) -> None:
        super().__init__(signal)
        self.name, self.site = name, site

    def call_target_in_group(self, gcc, func_name, *args, **kwargs):
        threading.Thread(target=self._run, args=(gcc, func_name, args, kwargs), daemon=True).start()

    def _run(self, gcc, func_name, args, kwargs):
        fate = self.site.fate[min(len(self.site.log), len(self.site.fate) - 1)]
        if func_name == "train" and isinstance(fate, str) and fate == "gone":
            time.sleep(min(gcc.call_opt.timeout, 0.05))
            gcc.set_exception(CollabCallError(gcc.target_name, func_name, TimeoutError("timed out")))
            gcc.call_completed()
            return
        try:
            result = getattr(self.site, func_name)(*args, **kwargs)
            gcc.set_result(result)
        except Exception as error:
            said = CollabCallError(gcc.target_name, func_name, str(error), type(error).__name__, "Traceback ...")
            gcc.set_exception(said)
        gcc.call_completed()


class Server:
    @collab.main
    def main(self):
        raise AssertionError("the test plays the main function")


@contextlib.contextmanager
def job(sites: dict[str, Site]) -> Iterator[Signal]:
    """A running job: `collab.clients` are the sites."""
    signal = Signal()
    app = ServerApp(Server())
    app._abort_signal = signal
    known = {"train": ["model", "number"], "evaluate": ["model"], "score": ["model"]}
    app._client_proxies = [
        Proxy(app, name, site.fqn or name, Wire(name, site, signal), known) for name, site in sites.items()
    ]
    app.new_context("server", "server")
    try:
        yield signal
    finally:
        set_call_context(None)


def model() -> dict[str, np.ndarray]:
    return {"w": np.zeros((3, 2)), "b": np.zeros(2)}
