"""100,000 rounds with joins, leaves, forgets and late feedback: memory, time, counters and debts against an own log."""

from __future__ import annotations

import resource
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np

from chaos.play import scratch, state_of
from chaos.rows import Row
from fedroster import Selector
from fedroster.catalogue import make_policy

_BETA, _AWAY = 0.05, 20
_PATIENCE = 50
_GROWTH_MIB = 4.0  # 42 bytes a round in 100,000 of them: less than one float for each of a cohort


class Log:
    """What one who keeps books beside a selector knows of each client."""

    def __init__(self) -> None:
        self.here: set[str] = set()
        self.away: dict[str, int] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.debt: dict[str, float] = {}

    def join(self, client: str) -> None:
        self.here.add(client)
        self.away[client] = 0
        self.counts.setdefault(client, defaultdict(int))
        self.debt.setdefault(client, 0.0)

    def leave(self, client: str, *, forget: bool) -> None:
        self.here.discard(client)
        if forget:
            for book in (self.away, self.counts, self.debt):
                book.pop(client, None)

    def round(self, available: set[str], pausing: set[str], cohort: tuple[str, ...]) -> None:
        if available and available <= pausing:
            pausing = pausing - available
        for client in self.here:
            pauses = client in pausing
            self.counts[client]["present"] += not pauses
            rests = self.away[client] > _AWAY and client not in available
            if not (rests or pauses):  # Huang et al. 2021, Eq. 6
                self.debt[client] = max(self.debt[client] + _BETA - (client in cohort), 0.0)
        for client in cohort:
            self.counts[client]["chosen"] += 1
        for client in self.away:
            self.away[client] = 0 if client in available else self.away[client] + 1


def run(size: float, seed: int) -> list[Row]:
    return [
        _soak("rbcs-f:V=1,beta=0.05", round(100_000 * size), seed),
        _soak("floor:beta=0.05", round(20_000 * size), seed),
    ]


def _rss_mib() -> float:
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) / 1024


def _compile(policy: str) -> None:
    """Meet so many rows that no kernel is interpreted any more: the compiler itself takes 120 MiB, once."""
    many = 60_000
    selector = Selector(make_policy(policy.replace("beta=0.05", "beta=0")), cohort_size=many, clients=range(many))
    cohort = selector.select(np.ones((many, 2)))
    selector.observe(cohort.round, times_s=dict.fromkeys(cohort.clients, 1.0))


def _soak(policy: str, rounds: int, seed: int) -> Row:
    _compile(policy)
    row = Row(f"rounds with joins, leaves, forgets and late feedback, {policy.partition(':')[0]}")
    rng = np.random.default_rng(seed)
    selector = Selector(make_policy(policy), cohort_size=5, num_features=2, patience_rounds=_PATIENCE)
    log = Log()
    names = [f"c{n}" for n in range(60)]
    for name in names[:40]:
        selector.join([name])
        log.join(name)
    speed = rng.lognormal(0.0, 0.7, 60)
    due: deque[tuple[int, int, dict[str, Any]]] = deque()
    times = np.full(rounds, np.nan)  # of a fixed size: the harness itself takes no more memory later
    memory: list[float] = []
    answered = worst = 0
    for number in range(1, rounds + 1):
        if rng.random() < 0.02:
            absent = [name for name in names if name not in log.here]
            if len(log.here) > 30 and (rng.random() < 0.5 or not absent):
                name, forget = sorted(log.here)[rng.integers(len(log.here))], bool(rng.random() < 0.4)
                selector.leave([name], forget=forget)
                log.leave(name, forget=forget)
            elif absent:
                name = absent[rng.integers(len(absent))]
                selector.join([name])
                log.join(name)
        cycle = number // 40 % 5  # a fifth of the clients is away for 40 rounds at a time
        available = {name for name in log.here if int(name[1:]) % 5 != cycle and rng.random() < 0.9}
        contexts = {name: [float(speed[int(name[1:])]), 1.0] for name in sorted(available)}
        pausing = set(selector.paused())
        row.tries += 1
        begin = time.perf_counter()
        cohort = selector.select(contexts)
        lasted = time.perf_counter() - begin
        log.round(available, pausing, cohort.clients)
        told: dict[str, Any] = {"times_s": {}, "dropped": []}
        for name in cohort.clients:
            if rng.random() < 0.05:
                told["dropped"].append(name)
            else:
                told["times_s"][name] = float(speed[int(name[1:])] * rng.lognormal(0.0, 0.2))
        if rng.random() > 0.02:  # the feedback of some rounds is never told
            due.append((number + int(rng.integers(0, 30) if rng.random() < 0.1 else 0), number, told))
        later = deque()
        while due:
            when, of, what = due.popleft()
            if when > number:
                later.append((when, of, what))
                continue
            open_ = set(selector.open_rounds().get(of, ()))  # those that were forgotten wait no more
            timed = {name: time_s for name, time_s in what["times_s"].items() if name in open_}
            begin = time.perf_counter()
            selector.observe(of, times_s=timed, dropped=[name for name in what["dropped"] if name in open_])
            lasted += time.perf_counter() - begin
            answered += len(timed)
            for name in timed:
                log.counts[name]["trained"] += 1
        due = later
        times[number - 1] = lasted
        row.slowest_s = max(row.slowest_s, lasted)
        if number % max(1, rounds // 20) == 0:
            memory.append(_rss_mib())
            worst = max(worst, _compare(row, selector, log, number))
    if len(selector.open_rounds()) > _PATIENCE:
        row.fault(f"{len(selector.open_rounds())} open rounds with a patience of {_PATIENCE}")
    path = scratch()
    selector.save(path)
    again = Selector.load(path, selector.policy)
    path.unlink()
    if state_of(again) != state_of(selector):
        row.fault("a selector that was loaded differs")
    times = times[: row.tries]
    tenth = max(1, len(times) // 10)
    early, late = (1e3 * float(np.median(part)) for part in (times[tenth : 2 * tenth], times[-tenth:]))
    if len(times) > 5000 and late > 2.0 * early:
        row.fault(f"a round takes {late:.2f} ms in the end, {early:.2f} ms at first")
    settled = memory[len(memory) // 4]  # after a quarter of the rounds, all buffers are there
    if memory[-1] > settled + _GROWTH_MIB:
        row.fault(f"memory grows from {settled:.1f} to {memory[-1]:.1f} MiB")
    row.note = (
        f"median {early:.2f} ms early, {late:.2f} ms late; {settled:.1f} MiB after a quarter of the rounds, "
        f"{memory[-1]:.1f} MiB at the end; {answered} answers; largest difference of debts {worst:.1g}"
    )
    row.peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return row


def _compare(row: Row, selector: Selector, log: Log, number: int) -> float:
    """Hold the selector's counters and debts against the log."""
    if set(selector.clients) != log.here:
        row.fault(f"round {number}: other members")
        return 0.0
    for of in ("chosen", "trained"):
        counted = selector.participation(of)
        wrong = [name for name in log.here if counted[name] != log.counts[name][of]]
        if wrong:
            told = [(name, counted[name], log.counts[name][of]) for name in sorted(wrong)[:3]]
            row.lose(len(wrong), f"round {number}: {of} of {told}")
    rates = selector.participation_rates()
    for name in log.here:
        counts = log.counts[name]
        if rates[name] != counts["chosen"] / max(counts["present"], 1):
            row.fault(f"round {number}: rate of {name} is {rates[name]}, {dict(counts)}")
            break
    if not hasattr(selector.policy, "backlog") or "rbcs-f" not in row.what:
        return 0.0
    owed = selector.backlog()
    errors = {name: abs(owed[name] - log.debt[name]) for name in log.here}
    name = max(errors, key=errors.__getitem__)
    if errors[name] > 1e-6:
        row.fault(f"round {number}: {name} is owed {owed[name]}, by the log {log.debt[name]}")
    return errors[name]
