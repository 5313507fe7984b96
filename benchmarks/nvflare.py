"""The NVFlare adapter: what it adds to a round beside FLARE's own group calls.

Run as ``python -m benchmarks.nvflare`` in an environment with the extra ``nvflare``.  The groups are FLARE's; sites are
threads that reply after a known time, so that neither side pays for a network.
"""

from __future__ import annotations

import logging
import os
import random
import statistics
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.signal import Signal
from nvflare.collab import collab
from nvflare.collab.api._invocation import _InvocationDispatcher
from nvflare.collab.api.app import ServerApp
from nvflare.collab.api.proxy import Proxy

from benchmarks.rows import Row, Session
from fedroster import RBCSF, Selector
from fedroster.adapters.nvflare import SelectingClients


class TimedSite(_InvocationDispatcher):
    """A site that replies after a time that is known exactly."""

    def __init__(self, delay_s: float, signal: Signal) -> None:
        """Make a site."""
        super().__init__(signal)
        self.delay_s = delay_s

    def call_target_in_group(self, gcc: Any, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Reply with the model, later."""
        timer = threading.Timer(self.delay_s, self._reply, (gcc, kwargs["model"]))
        timer.daemon = True
        timer.start()

    def _reply(self, gcc: Any, model: Any) -> None:
        gcc.set_result((model, {"num-examples": 1}))
        gcc.call_completed()


class Server:
    """A server app needs a main function."""

    @collab.main
    def main(self) -> None:
        """Never called."""


def flush_s(folder: str, repeats: int = 20) -> float:
    """How long one append of a small state waits for the disk of a folder, seconds."""
    number, took = os.open(Path(folder) / "flush", os.O_WRONLY | os.O_CREAT | os.O_APPEND), []
    for _ in range(repeats):
        started_s = time.perf_counter()
        os.write(number, bytes(36_000))
        os.fdatasync(number)
        took.append(time.perf_counter() - started_s)
        time.sleep(0.05)
    os.close(number)
    return statistics.median(took)


def overhead(num_sites: int = 100, cohort_size: int = 20, num_rounds: int = 12) -> dict[str, float]:
    """Time beyond the slowest site's, % of a round: with a policy, saved or not, and with FLARE's group alone."""
    random.seed(0)
    times_s = {f"site-{n}": 1.0 + random.random() for n in range(num_sites)}
    app, signal = ServerApp(Server()), Signal()
    app._abort_signal = signal
    interface = {"train": ["model"]}
    app._client_proxies = [
        Proxy(app, name, name, TimedSite(delay_s, signal), interface) for name, delay_s in times_s.items()
    ]
    app.new_context("server", "server")
    model = {"w": np.zeros(100_000, np.float32)}
    shares: dict[str, list[float]] = {"ours": [], "saving": [], "flare": []}
    with tempfile.TemporaryDirectory() as folder:
        clients = {
            name: SelectingClients(Selector(RBCSF(V=5.0, beta=0.1), cohort_size=cohort_size), state_dir=state_dir)
            for name, state_dir in (("ours", None), ("saving", folder))
        }
        for number in range(num_rounds):
            for name, sums in shares.items():  # in turn: a slow moment of the machine hits all
                started_s = time.perf_counter()
                if name == "flare":
                    cohort = random.sample(sorted(times_s), cohort_size)
                    used = [site for site, _ in collab.get_clients(cohort)(timeout=60.0).train(model)]
                else:
                    used = [reply.name for reply in clients[name].call("train", model)]
                took_s = time.perf_counter() - started_s
                if number:  # the first one compiles
                    sums.append((took_s - max(times_s[site] for site in used)) / took_s)
        for selecting in clients.values():
            selecting.release()
        told = {name: 100.0 * statistics.median(sums) for name, sums in shares.items()}
        return told | {"flush_ms": 1000.0 * flush_s(folder), "load": os.getloadavg()[0]}


def main() -> None:
    """Measure everything and publish it."""
    session = Session("nvflare", __doc__, seed="0")
    quick = session.parser.parse_args().quick
    logging.disable(logging.INFO)
    told = overhead(num_rounds=3 if quick else 12)
    about = "share of a round beyond the slowest site's time, 100 sites, cohort 20, rounds of two seconds"
    rows = [
        Row(about, told["ours"], "%", "group-overhead", peer=told["flare"], peer_name="FLARE's own group call"),
        Row(
            f"{about}, every round saved",
            told["saving"],
            "%",
            "group-overhead",
            peer=told["flare"],
            peer_name="FLARE's own group call, which saves nothing",
        ),
    ]
    notes = [
        f"NVFlare {metadata.version('nvflare')}",
        f"Load of the machine in the minute before the end: {told['load']:.1f}.  A single flush of the disk: "
        f"{told['flush_ms']:.1f} ms, median; a saved round waits for one.",
    ]
    session.publish(rows, notes=notes, extra=told)


if __name__ == "__main__":
    main()
