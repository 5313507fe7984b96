"""Digests of the cohorts that every policy chooses, and the command that makes them (``--help``).

A digest covers all rounds up to its checkpoint: who was chosen, and by which edge server, never a number that was
computed.  They were made by the code before the books became events.  A difference between two checkpoints is found
with ``--cohorts``, which prints the rounds: do it before and after a change, and compare.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from fedroster import make_policy
from fedroster.errors import FairnessWarning
from frozen.door import simulated
from frozen.world import PROFILES, Fleet

FILE = Path(__file__).with_name("digests.json")
CHECKPOINTS = (10, 30, 100, 300, 1000, 3000)

FLAT = (
    "rbcs-f:V=20,beta=0.15",
    "rbcs-f:V=1,beta=0.05",
    "random",
    "dirichlet",
    "oort",
    "power-of-choice:d=10",
    "tifl",
    "e3cs",
    "cs-ucb:fairness=0.1",
    "round-robin",
    "size-weighted",
)
EDGES = (
    "cocs",
    "cucb",
    "linucb",
    "cucb-pairs",
    "linucb-pairs",
    "partial-pooling",
    "partial-pooling:beta=0.05",
    "random",
)
FLOOR = ("floor:beta=0.15", "floor:beta=0.05,slack=4")
SIMULATED = {
    "rbcs-f/table-1": (*FLAT, "p3:V=20", "fedcs:deadline_s=3", "fedcs-greedy"),
    "rbcs-f/volatile": (*FLAT, "p3:V=20"),
    "traces/devices": ("rbcs-f:V=20,beta=0.08", *FLAT[1:]),
    "cocs/mnist": (*EDGES, "oracle", "oracle-p"),
    "cocs/mnist-geometric": (*EDGES, "oracle", "oracle-p"),
    "hidden/mnist": ("cocs", "partial-pooling", "oracle-p"),
}
SETTINGS = {"traces/devices": {"num_clients": "200"}}


def names():
    """Name of each run, by the list that it stands in.

    ``policies`` must stay as they are.  ``floats`` stay on one machine: another processor's sums decide otherwise.
    ``guard`` and ``floor`` change when the guard's duties or FLOOR's choice do, and are then made again alone.
    """
    calm = [name for name in PROFILES if name != "guarded"]
    runs = [f"selector {way} {policy}" for way in calm for policy in FLAT]
    runs += [f"edges {way} {policy}" for way in calm if PROFILES[way].contexts for policy in EDGES]
    runs += [f"{scenario} {policy}" for scenario, some in SIMULATED.items() for policy in some]
    floor = [f"selector {way} {policy}" for way in PROFILES for policy in FLOOR]
    floor += [f"{scenario} {policy}" for scenario in SIMULATED if "rbcs" in scenario for policy in FLOOR]
    guard = [f"selector guarded {policy}" for policy in FLAT] + [f"edges guarded {policy}" for policy in EDGES]
    floats = [name for name in runs if "linucb-pairs" in name]
    return {"policies": [name for name in runs if name not in floats], "floats": floats, "guard": guard, "floor": floor}


def cohorts(name, rounds):
    """A line for each round of a run."""
    *where, policy = name.split(" ")
    if where[0] in ("selector", "edges"):
        fleet = Fleet(make_policy(policy), PROFILES[where[1]], seed=3, edges=where[0] == "edges")
        for cohort in fleet.play(rounds):
            yield f"{cohort.round} {list(cohort.clients)} {list(getattr(cohort, 'servers', ()))}"
    else:
        for played in simulated(make_policy(policy), where[0], rounds, seed=3, **SETTINGS.get(where[0], {})):
            links = played.selection.links
            servers = [] if played.context.server is None else played.context.server[links].tolist()
            yield f"{played.context.round} {played.context.clients_of(links).tolist()} {servers}"


def digests(name, rounds):
    """The digest at each checkpoint of a run."""
    total, found = hashlib.sha256(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairnessWarning)
        for number, line in enumerate(cohorts(name, rounds), 1):
            total.update(line.encode() + b"\n")
            if number in CHECKPOINTS:
                found.append(total.hexdigest()[:12])
    return found


def expected():
    """The digests that were made before, of each run by its list."""
    return {
        each: {name: made.split() for name, made in runs.items()} for each, runs in json.loads(FILE.read_text()).items()
    }


def _compared(name, rounds, before):
    """What a run makes now, and what is to be said of it."""
    started, made = time.perf_counter(), []
    try:
        made = digests(name, rounds)
        other = [at for at, now, then in zip(CHECKPOINTS, made, before, strict=False) if now != then]
        said = "new" if not before else f"OTHER by round {other[0]}" if other else "same"
    except Exception as error:
        said = f"ERROR {error!r}"
    return name, made, f"{said}: {name} ({time.perf_counter() - started:.1f} s)"


def main():
    """Compare all runs with their digests, or write these."""
    parser = argparse.ArgumentParser(prog="python -m frozen.digests", description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=CHECKPOINTS[-1])
    parser.add_argument("--only", default="", help="runs whose name holds this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--cohorts", metavar="NAME", help="print the rounds of one run")
    parser.add_argument("--write", metavar="LIST", choices=[*names(), "all"], help="make the digests of a list again")
    given = parser.parse_args()
    if given.cohorts:
        for line in cohorts(given.cohorts, given.rounds):
            print(line)
        return 0
    known = expected()
    lists = [each for each in names() if given.write in (None, "all", each)]
    wanted = [name for each in lists for name in names()[each] if given.only in name]
    before = {name: made for runs in known.values() for name, made in runs.items()}
    said = []
    with ProcessPoolExecutor(given.jobs) as pool:
        rounds, then = [given.rounds] * len(wanted), [before.get(name, []) for name in wanted]
        for name, made, what in pool.map(_compared, wanted, rounds, then):
            print(what, flush=True)
            said.append(what)
            before[name] = made or before.get(name, [])
            if given.write:  # after each run: all of them take half an hour
                known |= {each: {name: before.get(name, []) for name in names()[each]} for each in lists}
                texts = {each: {name: " ".join(made) for name, made in runs.items()} for each, runs in known.items()}
                FILE.write_text(json.dumps(texts, indent=1) + "\n")
    return int(not given.write and any(not what.startswith("same") for what in said))


if __name__ == "__main__":
    sys.exit(main())
