"""Handlers of signals that raise while a call is under way: the state is the old one or the new one."""

from __future__ import annotations

import signal
import time

import numpy as np

from chaos.play import differences, every, history, play, state_of, twin
from chaos.rows import Row


class Interrupted(Exception):
    """What the handler raises."""


def _raise(*_: object) -> None:
    raise Interrupted


def run(size: float, seed: int) -> list[Row]:
    row = Row("calls that a signal's handler interrupts")
    rng = np.random.default_rng(seed)
    wanted = round(3_000 * size)
    federations = every()
    interrupted = number = 0
    old_handler = signal.signal(signal.SIGALRM, _raise)
    try:
        while row.tries < wanted:
            policy, make = federations[row.tries % len(federations)]
            selector = history(make(policy), seed, 20)
            for _ in range(min(25, wanted - row.tries)):
                row.tries += 1
                number += 1
                begin = time.perf_counter()
                after = twin(selector)
                old = state_of(selector)
                start = time.perf_counter()
                play(after, seed, 1000 + number)
                usual_s = time.perf_counter() - start
                new = state_of(after)
                was_interrupted = False
                try:
                    signal.setitimer(signal.ITIMER_REAL, max(2e-6, rng.uniform(0.0, 1.1) * usual_s))
                    play(selector, seed, 1000 + number)
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
                except (Interrupted, SystemError):  # the latter is what compiled code makes of it
                    was_interrupted = True
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
                interrupted += was_interrupted
                now = state_of(selector)
                if now != old and now != new:
                    row.fault(f"{policy}: neither the old nor the new state, {differences(now, old)}")
                    selector = after
                elif not was_interrupted and now != new:
                    row.fault(f"{policy}: it ended without an error and without the new state")
                row.timed(begin)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old_handler)
    row.note = f"{interrupted} interrupted, the others ended first"
    return [row.done()]
