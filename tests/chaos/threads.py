"""Threads: one selector in several of them is refused and never corrupt; one selector each is as if alone."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from chaos.children import fork, wait
from chaos.play import contexts_of, every, flat, play, scratch, state_of
from chaos.rows import Row
from fedroster.core.errors import FedrosterError

_THREADS = 4


def run(size: float, seed: int) -> list[Row]:
    return [_one_for_all(size, seed), _one_each(size, seed)]


def _together(work: Any) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _one_for_all(size: float, seed: int) -> Row:
    row = Row(f"one selector in {_THREADS} threads")
    total = refusals = 0
    for attempt in range(max(2, round(10 * size))):
        row.tries += 1
        begin = time.perf_counter()
        path = scratch(".json")
        policy, rounds = ("rbcs-f:V=5,beta=0.1", "floor", "oort")[attempt % 3], max(50, round(1000 * size))
        code = wait(fork(lambda: _crowd(policy, rounds, seed + attempt, path)))  # noqa: B023
        row.timed(begin)
        if code:
            row.fault(f"the process died with {code}, {policy}")
            continue
        found = json.loads(path.read_text())
        total, refusals = total + found["rounds"], refusals + found["refused"]
        if found["doubled"]:
            row.fault(f"{found['doubled']} of {found['rounds']} round numbers were given twice, {policy}")
        if found["last"] != found["rounds"]:
            row.fault(f"{found['rounds']} rounds were begun, {found['last']} are counted, {policy}")
        if found["counted"] != found["places"]:
            row.fault(f"{found['places']} places were given, {found['counted']} are counted, {policy}")
        for text in found["raw"]:
            row.raw += 1
            row.cases[len(row.cases) :] = [f"raw: {text}, {policy}"][: 5 - len(row.cases)]
    row.note = f"{total} rounds begun, {refusals} calls refused"
    return row.done()


def _crowd(policy: str, rounds: int, seed: int, path: Path) -> None:
    import numpy as np

    sys.setswitchinterval(1e-5)
    selector = flat(policy)
    lock, seen, refused, raw, places = threading.Lock(), [], [0], [], [0]

    def work(thread: int) -> None:
        rng = np.random.default_rng([seed, thread])
        for _ in range(rounds):
            contexts = {f"c{n}": rng.uniform(0.05, 1.0, 2).tolist() for n in range(12)}
            try:
                cohort = selector.select(contexts)
                with lock:
                    seen.append(cohort.round)
                    places[0] += len(cohort.clients)
                selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))
            except FedrosterError:
                with lock:
                    refused[0] += 1
            except Exception as error:
                with lock:
                    raw.append(f"{type(error).__name__}: {error}"[:120])

    _together(work)
    found = {
        "rounds": len(seen),
        "doubled": len(seen) - len(set(seen)),
        "last": selector.round,
        "refused": refused[0],
        "raw": raw[:20],
        "places": places[0],
        "counted": sum(selector.participation().values()),
    }
    cohort = selector.select(contexts_of(selector, np.random.default_rng(seed)))  # it still works
    selector.observe(cohort.round, dropped=cohort.clients)
    path.write_text(json.dumps(found))
    sys.stdout.flush()
    os._exit(0)


def _one_each(size: float, seed: int) -> Row:
    row = Row(f"{_THREADS} threads, a selector each")
    for policy, make in every():
        steps = max(40, round(400 * size))
        row.tries += _THREADS
        begin = time.perf_counter()

        def alone(thread: int, make: Any = make, policy: str = policy, steps: int = steps) -> Any:
            selector = make(policy, seed=thread)
            return [play(selector, seed + thread, number) for number in range(steps)], state_of(selector)

        expected = [alone(n) for n in range(_THREADS)]
        found: dict[int, Any] = {}

        def work(thread: int, found: dict[int, Any] = found, alone: Any = alone) -> None:
            try:
                found[thread] = alone(thread)
            except Exception as error:
                found[thread] = error

        _together(work)
        for thread in range(_THREADS):
            if isinstance(found[thread], Exception):
                row.error(found[thread], policy)
            elif found[thread] != expected[thread]:
                row.fault(f"{policy}: a run in a thread differs from one alone")
        row.timed(begin)
    return row.done()
