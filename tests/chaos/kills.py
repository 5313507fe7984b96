"""SIGKILL of a process that selects, observes, joins, leaves and saves, beside a log of what it acknowledged."""

from __future__ import annotations

import os
import random
import tempfile
import time
from functools import partial
from pathlib import Path

from chaos.children import end, fork, leftovers
from chaos.play import content, differences, edge, flat, history, play, state_of, twin
from chaos.rows import Row

_FEDERATIONS = (("rbcs-f:V=5,beta=0.1", flat), ("floor", flat), ("oort", flat), ("partial-pooling", edge))
_NEXT = 6  # decisions that are compared after each kill


def run(size: float, seed: int) -> list[Row]:
    row = Row("SIGKILL of select, observe, join, leave and save, against a log with fsync")
    acknowledged = unacknowledged = litter = 0
    rng = random.Random(seed)
    kills = max(2, round(200 * size / len(_FEDERATIONS)))
    for policy, make in _FEDERATIONS:
        history(make(policy), seed, 60)  # what is compiled is loaded before the forks
    for index, (policy, make) in enumerate(_FEDERATIONS):
        with tempfile.TemporaryDirectory() as folder:
            path, log = Path(folder) / "state.npz", Path(folder) / "log"
            mirror = make(policy)
            mirror.save(path)
            done = 0
            for _ in range(kills):
                begin = time.perf_counter()
                row.tries += 1
                log.write_bytes(b"")
                reader, writer = os.pipe()
                child = fork(
                    partial(_work, type(mirror), mirror.policy, path, log, seed=seed + index, done=done, ready=writer)
                )
                os.close(writer)
                os.read(reader, 1)  # it is under way
                os.close(reader)
                time.sleep(rng.expovariate(1.0 / 0.1))
                end(child)
                lines = log.read_bytes().split(b"\n")[:-1]
                told = int(lines[-1]) + 1 if lines else done
                acknowledged += told - done
                litter += len(leftovers(Path(folder)))
                try:
                    loaded = type(mirror).load(path, mirror.policy)
                except Exception as error:
                    row.error(error, f"load after a kill, {policy}")
                    return [row.done()]
                saved = state_of(loaded)
                before = twin(mirror)
                for number in range(done, told):
                    play(mirror, seed + index, number)
                done = told
                if saved != state_of(mirror):
                    behind = differences(saved, state_of(mirror))
                    play(mirror, seed + index, done)  # saved and not acknowledged any more
                    done += 1
                    unacknowledged += 1
                    if saved != state_of(mirror):
                        _judge(row, saved, before, seed + index, done, f"{policy}: {behind}")
                        return [row.done()]
                copy_of = twin(mirror)
                for number in range(done, done + _NEXT):
                    if play(loaded, seed + index, number) != play(copy_of, seed + index, number):
                        row.fault(f"decision {number} after a load differs, {policy}")
                row.timed(begin)
            loaded = type(mirror).load(path, mirror.policy)
            loaded.save(path)
            stay = leftovers(Path(folder))
            if stay:
                row.fault(f"{len(stay)} temporary files stay beside the state after the next save, {policy}")
            if content(path) != state_of(mirror):
                row.fault(f"the last file differs, {policy}")
    row.note = (
        f"{acknowledged} operations acknowledged; {unacknowledged} saved and not yet acknowledged; "
        f"{litter} temporary files seen after kills"
    )
    return [row.done()]


def _work(kind: type, policy: object, path: Path, log: Path, *, seed: int, done: int, ready: int) -> None:
    selector = kind.load(path, policy)
    with log.open("ab", buffering=0) as out:
        os.write(ready, b"!")
        number = done
        while True:
            play(selector, seed, number)
            selector.save(path)
            out.write(b"%d\n" % number)
            os.fsync(out.fileno())
            number += 1


def _judge(row: Row, saved: dict, before: object, seed: int, done: int, case: str) -> None:
    """Whether the file is an older state, or none that there ever was."""
    for number in range(max(0, done - 200), done):
        if saved == state_of(before):
            row.lose(done - number, f"the file is older than what was acknowledged, {case}")
            return
        play(before, seed, number)
    row.fault(f"the file holds a state that never was, {case}")
