"""A made-up fleet in front of a selector: what it is asked, what is told of each round, and what changes meanwhile.

All draws have the address (seed, round) and are made for the whole fleet, so what a client does in a round does not
depend on what was decided.  There are no logarithms, exponentials or sums over arrays in it: every machine plays the
same world.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import numpy as np

from fedroster import EdgeSelector, FailureRules, Group, Rules, Selector
from frozen.door import UNGUARDED

NAMES = [f"c{number:02}" if number % 5 else 100 + number for number in range(32)]
"""All clients that ever take part; every fifth id is a number."""

FIRST, MOST, FEWEST = 24, 30, 18  # members at the start, at most and at least
COHORT = 6
SERVERS = {"north": 1.5, "south": 1.1, "west": 0.8}  # budgets
ROUND_S = 60.0  # from one round to the next

RULES = (
    Rules(
        deny=["c03"],
        groups={"few": Group(("c0*",), most=2), "sites": Group(("c1*", "c2*"), least=1)},
        most_per_window=7,
        window=10,
    ),
    Rules(
        tags={"old": ["c0?", "100"]},
        deny=["c29"],
        priorities={"tag:old": 1},
        groups={"pair": Group(("c11", "c12"), most=1)},
        least_separation=2,
        least_separation_s=2.5 * ROUND_S,
    ),
    Rules(allow=["c*", "1[0-2]?"], least_cohort=1, most_per_window=2, window=4),
)
"""Rules that come into force one after the other; in this fleet a round can always be begun under them."""

EDGE_RULES = (replace(RULES[0], groups={"few": Group(("c0*",), most=2)}), RULES[1], replace(RULES[2], least_cohort=0))
"""The same without least numbers, which budgets and reach of edge servers may make impossible."""


@dataclass(frozen=True)
class Profile:
    """What happens to a federation.

    Attributes:
        contexts: Whether contexts are told.
        rules: Whether rules are in force.
        moves: Whether clients join, leave and are forgotten.
        places: Whether free places are filled one by one in some rounds.
        late: Whether answers come late, in parts, twice or never.
        options: Options of the selector.
    """

    contexts: bool = True
    rules: bool = False
    moves: bool = False
    places: bool = False
    late: bool = False
    options: dict = field(default_factory=lambda: dict(UNGUARDED))


ROUGH = {"contexts": True, "rules": True, "moves": True, "places": True, "late": True}
PROFILES = {
    "calm": Profile(),
    "bare": Profile(contexts=False, moves=True, late=True),
    "rough": Profile(**ROUGH),
    "guarded": Profile(**ROUGH, options={}),
}


class Fleet:
    """Plays rounds with a selector.

    Attributes:
        selector: The selector; another one in the same state may take its place between rounds.
    """

    def __init__(self, policy, profile, *, seed=0, edges=False, **options):
        """Begin a federation."""
        self.profile, self.seed, self.edges = profile, seed, edges
        self._waiting = []  # answers that are on their way: when they come, of which round, what is told
        self._round = 0
        self.rules = EDGE_RULES if edges else RULES
        given = {
            "cohort_size": COHORT,
            "clients": NAMES[:FIRST],
            "seed": seed,
            "patience_rounds": 25,
            "failures": FailureRules(True, 2, 8),
            "clock": self.clock,
            "rules": self.rules[0] if profile.rules else None,
            **profile.options,
            **options,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.selector = EdgeSelector(policy, budgets=SERVERS, **given) if edges else Selector(policy, **given)

    def clock(self):
        """The time: it stands still within a round."""
        return 1e9 + self._round * ROUND_S

    def play(self, rounds):
        """Play rounds; yields the cohort of each."""
        for _ in range(rounds):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of rates that rules and absences make impossible: they are meant
                cohort = self.one_round()
            yield cohort

    def one_round(self):
        """One round, with all that comes before it and what is told after it."""
        self._round = number = self.selector.round + 1
        rng = np.random.default_rng([self.seed, number])
        if self.profile.moves:
            self.move(number, rng)
        self.deliver(number)
        if self.profile.rules and number % 40 == 20:
            self.selector.rules = self.rules[(number + 20) // 40 % len(self.rules)]
        cohort = self.ask(number, rng)
        self.answer(cohort, np.random.default_rng([self.seed, number, 1]))
        return cohort

    def move(self, number, rng):
        """Clients join, leave, come back and are forgotten."""
        here, draw = self.selector.clients, rng.random(3)
        if number % 13 == 0 and len(here) > FEWEST:
            self.selector.leave([here[int(draw[0] * len(here))]])
        if number % 29 == 0 and len(here) > FEWEST + 2:
            here = self.selector.clients
            self.selector.leave([here[int(draw[1] * len(here))]], forget=True)
        if number % 11 == 0 and len(here) < MOST:
            away = [name for name in NAMES if name not in self.selector.clients]
            self.selector.join([away[int(draw[2] * len(away))]])

    def ask(self, number, rng):
        """Ask for the round's cohort."""
        kind = np.arange(len(NAMES)) % 4
        there = rng.random(len(NAMES)) < 0.9 - 0.15 * (np.arange(len(NAMES)) % 3)
        load, size = rng.uniform(0.5, 2.0, len(NAMES)), rng.uniform(0.5, 1.5, len(NAMES))
        reach, price = rng.random((len(NAMES), len(SERVERS))) < 0.7, rng.uniform(0.2, 1.0, len(NAMES))
        free, busy = int(rng.integers(1, COHORT + 1)), bool(rng.random() < 0.3)
        self.times_s = (1.0 + kind) * load * size * rng.uniform(0.8, 1.25, len(NAMES))
        row = {name: row for row, name in enumerate(NAMES)}
        here = [name for name in self.selector.clients if there[row[name]]]
        cold = self.selector.cold()
        asked = {}
        if self.profile.contexts:  # the edge policies want numbers in [0, 1]
            scale = 0.4 if self.edges else 1.0
            contexts = {n: [scale * load[row[n]], float(cold[n]), scale * size[row[n]]] for n in here}
        else:
            contexts = here
        if self.profile.places and number % 20 >= 14:
            asked = {"at_most": free} | ({"busy": True} if busy else {})
        if self.edges:
            labels = list(SERVERS)
            asked["servers"] = {n: [labels[s] for s in np.flatnonzero(reach[row[n]])] for n in here}
            asked["prices"] = {n: float(price[row[n]]) for n in here}
        return self.selector.select(contexts, **asked)

    def answer(self, cohort, rng):
        """Tell what came of a cohort at once; the rest is under way."""
        fate = dict(zip(NAMES, rng.random(len(NAMES)), strict=True))
        delay = dict(zip(NAMES, rng.integers(1, 30, len(NAMES)).tolist(), strict=True))
        loss = dict(zip(NAMES, rng.uniform(0.1, 3.0, len(NAMES)).tolist(), strict=True))
        draw = rng.random(4)
        now = {}
        for number, client in enumerate(cohort.clients):
            time_s = float(self.times_s[NAMES.index(client)])
            sick = 0.4 if NAMES.index(client) % 7 == 3 else 0.0
            told = {"times_s": {client: time_s}, "losses": {client: loss[client]}, "num_samples": {client: 10 + number}}
            told["squared_losses"] = {client: loss[client] * (loss[client] + 0.5)}
            if fate[client] < 0.05 + sick:
                told = {"dropped" if fate[client] < 0.025 + sick / 2 else "failed": [client]}
            elif fate[client] < 0.12 + sick:
                told["late"] = [client]
            if self.profile.late and fate[client] > 0.97:
                continue  # nothing ever comes
            if self.profile.late and fate[client] > 0.8:
                late = {"late": [client]} if "times_s" in told else {}
                self._waiting.append((cohort.round + delay[client], cohort.round, client, told | late))
            else:
                now[client] = told
        if self.profile.late and draw[0] < 0.3:  # in two parts
            some = [client for client in now if fate[client] < 0.4]
            self.tell(cohort.round, [now.pop(client) for client in some], again="error")
        more = {"round_s": ROUND_S / 2} if draw[1] < 0.5 else {}
        if draw[2] < 0.2 and now:
            more["unlearned"] = [client for client in now if "times_s" in now[client]][:1]
        if self.edges and not self.profile.options:
            more["costs"] = {client: 0.5 + fate[client] for client in now}
        self.tell(cohort.round, list(now.values()), again="error", **more)
        if self.profile.late and draw[3] < 0.2:  # all of it twice
            self.tell(cohort.round, list(now.values()), again="ignore")

    def deliver(self, number):
        """Tell what was under way until now."""
        come = [each for each in self._waiting if each[0] <= number]
        self._waiting = [each for each in self._waiting if each[0] > number]
        for _, of_round, client, told in come:
            if client in self.selector.open_rounds().get(of_round, ()):  # else it was forgotten, or given up
                self.tell(of_round, [told], again="error")

    def tell(self, of_round, parts, **more):
        """Tell the parts of an answer in one call."""
        merged = {}
        for part in parts:
            for name, value in part.items():
                merged[name] = (
                    merged.get(name, type(value)()) + value
                    if isinstance(value, list)
                    else {
                        **merged.get(name, {}),
                        **value,
                    }
                )
        if merged:
            self.selector.observe(of_round, **merged, **more)
