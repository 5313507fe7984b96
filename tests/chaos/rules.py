"""Random rule sets, and a judge who knows rules from their page alone: no cohort breaks one, and no round is refused
that could begin; and what ``Rules.check`` says of random consortia is what a schedule by hand finds."""

from __future__ import annotations

import copy
import fnmatch
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from chaos.play import every, flat, scratch
from chaos.rows import Row
from fedroster import Rules, Selector
from fedroster.catalogue import make_policy
from fedroster.core.errors import InfeasibleError, RoundNotBegunError

_POLICIES = [name for name, make in every() if make is flat and make_policy(name).fills_cohort]
_COHORT = 5
_NAMES: list[Any] = [*(f"{site}{number}" for site in "abcd" for number in range(5)), 1, 12, "a[1]", "x*y"]
_ENTRIES = ["a*", "b?", "[cd]*", "?1", "tag:x", "tag:y", "a1", "b2", "c3", "12", "a[1]", "*y", "no-such"]
_TAGS = {"x": ["a*", "12"], "y": ["?2", "d4"]}


def run(size: float, seed: int) -> list[Row]:
    return [_histories(round(400 * size), seed), _consortia(round(2_000 * size), seed)]


# -------------------------------------------------------------------- the judge


def _is_named(client: Any, entries: Iterable[str]) -> bool:
    names = [name for entry in entries for name in (_TAGS[entry[4:]] if entry.startswith("tag:") else [entry])]
    return any(str(client) == name or fnmatch.fnmatchcase(str(client), name) for name in names)


class Judge:
    """What every client did, and what a table of rules says of it."""

    def __init__(self) -> None:
        self.table: dict[str, Any] = {}
        self.did: dict[Any, list[tuple[int, float, bool]]] = {}  # rounds, when, and whether there were rules

    def groups_of(self, client: Any) -> list[str]:
        return [name for name, group in self.table.get("groups", {}).items() if _is_named(client, group["clients"])]

    def may(self, client: Any, round_: int, now_s: float, strangers: set[Any]) -> bool:
        """Whether a client may be chosen at all."""
        table, did = self.table, self.did.get(client, [])
        names = any(table.get(rule) is not None for rule in ("allow", "deny", "groups", "priorities"))
        if (names and client in strangers) or _is_named(client, table.get("deny", [])):
            return False
        if table.get("allow") is not None and not _is_named(client, table["allow"]):
            return False
        if len(self.groups_of(client)) > 1 or len(did) >= table.get("most_participations", np.inf):
            return False
        counted = [(number, at_s) for number, at_s, is_ruled in did if is_ruled]
        window = table.get("window", 0)
        if isinstance(window, str):
            recent = sum(now_s - at_s < float(window[:-1]) for _, at_s in counted)
        else:
            recent = sum(round_ - number < window for number, _ in counted)
        if recent >= table.get("most_per_window", np.inf):
            return False
        if did and round_ - did[-1][0] < table.get("least_separation", 1):
            return False
        return not counted or now_s - counted[-1][1] >= table.get("least_separation_s", 0.0)

    def priority(self, client: Any) -> int:
        named = [number for entry, number in self.table.get("priorities", {}).items() if _is_named(client, [entry])]
        return max(named, default=0)

    def faults(
        self, cohort: list[Any] | None, could: list[Any], at_work: list[Any], places: int, fills: bool
    ) -> list[str]:
        """What is wrong with a cohort, None for a round that did not begin, of those that could be chosen."""
        busy = Counter(name for client in at_work for name in self.groups_of(client)[:1])
        there = Counter(name for client in could for name in self.groups_of(client))
        groups, least = self.table.get("groups", {}), self.table.get("least_cohort", 0)
        room = {name: max(group.get("most", 10**9) - busy[name], 0) for name, group in groups.items()}
        need = {name: max(group.get("least", 0) - busy[name], 0) for name, group in groups.items()}
        free = sum(not self.groups_of(client) for client in could)
        reach = min(places, free + sum(min(room[name], there[name]) for name in groups))
        can = all(min(room[name], there[name]) >= need[name] for name in groups) and sum(need.values()) <= places
        can &= reach + len(at_work) >= least
        if cohort is None:
            return ["a round that could begin is refused"] if can else []
        has = Counter(name for client in cohort for name in self.groups_of(client))
        said = [] if can else ["a round that cannot begin has begun"]
        said += [f"{client!r} takes part" for client in cohort if client not in could]
        said += [f"{name}: {has[name]} of {need[name]} to {room[name]}" for name in groups
                 if not need[name] <= has[name] <= room[name]]  # fmt: skip
        if len(set(cohort)) != len(cohort) or len(cohort) > places or len(cohort) + len(at_work) < least:
            said.append(f"{len(cohort)} clients for {places} places, {len(at_work)} at work, at least {least}")
        if fills and len(cohort) < reach:
            said.append(f"{len(cohort)} clients where {reach} could take part")
        if fills and not groups and cohort:
            lowest = min(map(self.priority, cohort))
            said += [f"{client!r} has to wait for a lower priority" for client in could
                     if client not in cohort and self.priority(client) > lowest]  # fmt: skip
        return said


def _random_rules(rng: np.random.Generator) -> dict[str, Any]:
    """A table of rules; it may be one that no cohort can keep."""

    def some(most: int) -> list[str]:
        return [str(entry) for entry in rng.choice(_ENTRIES, int(rng.integers(1, most + 1)), replace=False)]

    table: dict[str, Any] = {"tags": _TAGS}
    if rng.random() < 0.3:
        table["allow"] = some(6) if rng.random() < 0.5 else ["*"]
    if rng.random() < 0.4:
        table["deny"] = some(3)
    if rng.random() < 0.5:
        table["groups"] = {}
        for name in ("g", "h", "k")[: rng.integers(1, 4)]:
            least = int(rng.integers(0, 3))
            top = {"most": least + int(rng.integers(0, 3))} if rng.random() < 0.6 else {}
            table["groups"][name] = {"clients": some(2), "least": least, **top}
    if rng.random() < 0.3:
        table["priorities"] = {entry: int(rng.integers(-2, 3)) for entry in some(4)}
    if rng.random() < 0.3:
        table["least_cohort"] = int(rng.integers(1, 5))
    if rng.random() < 0.2:
        table["most_participations"] = int(rng.integers(0, 12))
    if rng.random() < 0.5:
        window = int(rng.integers(1, 9))
        table |= {
            "most_per_window": int(rng.integers(1, 4)),
            "window": window if rng.random() < 0.5 else f"{20 * window}s",
        }
    if rng.random() < 0.3:
        table["least_separation"] = int(rng.integers(1, 5))
    if rng.random() < 0.3:
        table["least_separation_s"] = float(rng.integers(1, 60))
    return table


# -------------------------------------------------------------------- histories


def _histories(wanted: int, seed: int) -> Row:
    row = Row("random rule sets under every policy, by a judge of its own")
    rounds = refused = sets = 0
    while row.tries < max(wanted, 8):
        rng, policy = np.random.default_rng([seed, row.tries]), _POLICIES[row.tries % len(_POLICIES)]
        row.tries += 1
        begin, now, judge = time.perf_counter(), [1000.0], Judge()
        clock = partial(now.__getitem__, 0)
        selector: Any = flat(policy, cohort_size=_COHORT, num_clients=0, clock=clock)
        selector.join([_NAMES[slot] for slot in rng.permutation(len(_NAMES))[: rng.integers(4, len(_NAMES))]])
        for _ in range(40):
            now[0] += float(rng.exponential(10.0))
            selector, is_new = _between(selector, judge, rng, clock)
            sets += is_new
            said = _round(selector, judge, rng, now[0], fills=policy in ("random", "round-robin"))
            rounds, refused = rounds + 1, refused + (said is None)
            for text in said or ():
                row.fault(f"{policy}, round {selector.round}: {text}, under {judge.table}")
        row.timed(begin)
    row.note = f"{rounds} rounds, {refused} of them could not begin, {sets} sets of rules"
    return row.done()


def _between(selector: Any, judge: Judge, rng: np.random.Generator, clock: Callable[[], float]) -> tuple[Any, bool]:
    """What happens between two rounds; whether other rules are in force."""
    draw, absent = rng.random(), [name for name in _NAMES if name not in selector.clients]
    if draw < 0.1 and absent:
        selector.join([absent[rng.integers(len(absent))]])
    elif draw < 0.2 and len(selector.clients) > 3:
        client, forgets = selector.clients[rng.integers(len(selector.clients))], bool(rng.random() < 0.5)
        selector.leave([client], forget=forgets)
        if forgets:
            judge.did.pop(client, None)
    elif draw < 0.25:
        selector = copy.deepcopy(selector)
    elif draw < 0.3:
        path = scratch()
        selector.save(path)
        selector = Selector.load(path, selector.policy, clock=clock)
        path.unlink()
    elif draw < 0.4:
        table = _random_rules(rng) if rng.random() < 0.9 else {}
        needed = max(sum(group["least"] for group in table.get("groups", {}).values()), table.get("least_cohort", 0))
        try:
            selector.rules = Rules(**table)
        except InfeasibleError:
            if needed <= _COHORT:
                raise
            return selector, False
        judge.table = table
        return selector, True
    return selector, False


def _round(selector: Any, judge: Judge, rng: np.random.Generator, now_s: float, *, fills: bool) -> list[str] | None:
    """A round, and what is wrong with it; None if it could not begin, as it should not."""
    here = [client for client in selector.clients if rng.random() < 0.8]
    strangers = {client for client in here if rng.random() < 0.1}
    busy = [client for clients in selector.open_rounds().values() for client in clients]
    at_most = int(rng.integers(1, _COHORT + 1)) if rng.random() < 0.3 else None
    asked: dict[str, Any] = {"not_registered": list(strangers), "at_most": at_most}
    contexts = {client: rng.uniform(0.1, 1.0, 2) for client in here}
    number = selector.round + 1
    could = [
        client
        for client in here
        if judge.may(client, number, now_s, strangers) and (at_most is None or client not in busy)
    ]
    at_work = list(dict.fromkeys(busy)) if at_most is not None else []
    try:
        cohort = list(selector.select(contexts, **asked).clients)
    except RoundNotBegunError:
        return judge.faults(None, could, at_work, at_most or _COHORT, fills) or None
    said = judge.faults(cohort, could, at_work, at_most or _COHORT, fills)
    said += [f"{client!r} is excluded and may take part" for client in selector.excluded() if client in could]
    said += [
        f"{client!r} is not said to be excluded" for client in here if client not in {*could, *selector.excluded()}
    ]
    for client in cohort:
        judge.did.setdefault(client, []).append((number, now_s, Rules(**judge.table) != Rules()))
    told = [client for client in cohort if rng.random() < 0.8]
    losses = {client: float(rng.uniform(0.1, 2.0)) for client in told}
    times_s = {client: float(rng.uniform(1.0, 3.0)) for client in told}
    if told:
        selector.observe(number, times_s=times_s, losses=losses, squared_losses=losses, num_samples=losses)
    return said


# -------------------------------------------------------------------- consortia


def _consortia(wanted: int, seed: int) -> Row:
    """Groups that owe a least number to each round; by hand those who went least go, then those who waited longest."""
    row = Row("what Rules.check says of random consortia, by a schedule by hand")
    impossible = 0
    rng = np.random.default_rng([seed, 1])
    while row.tries < max(wanted, 40):
        row.tries += 1
        begin = time.perf_counter()
        sizes = rng.integers(1, 7, int(rng.integers(1, 4))).tolist()
        least = [int(rng.integers(0, size + 1)) for size in sizes]
        window, most, apart = int(rng.integers(1, 10)), int(rng.integers(1, 5)), int(rng.integers(1, 5))
        groups = {f"g{g}": {"clients": [f"g{g}-*"], "least": low} for g, low in enumerate(least)}
        rules = Rules(groups=groups, most_per_window=most, window=window, least_separation=apart)
        said = rules.check([f"g{g}-{n}" for g, size in enumerate(sizes) for n in range(size)])
        fails = [not _can_all_begin(size, low, most, window, apart) for size, low in zip(sizes, least, strict=True)]
        impossible += any(fails)
        for g, is_failing in enumerate(fails):
            if is_failing != any(f"'g{g}'" in text for text in said):
                row.fault(f"{sizes[g]} clients, least {least[g]}, {most} in {window}, {apart} apart: {said}")
        row.timed(begin)
    row.note = f"{impossible} of {row.tries} cannot begin every round"
    return row.done()


def _can_all_begin(size: int, least: int, most: int, window: int, apart: int, rounds: int = 90) -> bool:
    did: list[list[int]] = [[] for _ in range(size)]
    for number in range(rounds):
        free = [
            each
            for each in did
            if (not each or number - each[-1] >= apart) and sum(number - before < window for before in each) < most
        ]
        free.sort(key=lambda each: (len(each), each[-1] if each else -1))
        if len(free) < least:
            return False
        for each in free[:least]:
            each.append(number)
    return True
