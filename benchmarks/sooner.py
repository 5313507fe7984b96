"""Models sooner: the registered comparison of rounds with free places, and of averages with an update memory.

``python -m benchmarks.sooner tune`` finds the steps of each way on seeds of their own, ``... play`` plays the
registered runs, and ``... judge`` tests the registered claims, once, when all runs are there.  Each goes on where it
was stopped.  What is claimed, of what, and by which test stands in ``results/sooner/registry.json``, which was
committed before the first run; every row carries its digest.  ``... tune wider`` and so on do the same for another
family: ``wider``, ``harder``, ``images``, ``half``, which goes on to equal time, ``cnn``, and four whose steps are
fixed, ``methods``, ``devices``, ``weights`` and ``signatures``.  Needs Fashion-MNIST, and CIFAR-10 for ``images``, in
``FEDROSTER_DATA``.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.stats import ttest_1samp

from fedroster import make_policy, make_scenario
from fedroster.aggregation.memory import UpdateMemory
from fedroster.aggregation.places import FreePlaces
from fedroster.aggregation.server import ServerStep
from fedroster.errors import FairnessWarning
from fedroster.lab.data.load import Dataset, load_dataset
from fedroster.lab.data.partition import class_counts, couple_with_speed, dirichlet_partition
from fedroster.lab.federated import FederatedRound, federate
from fedroster.lab.statistics import LEVEL, seeds_needed
from fedroster.lab.task import usual_times
from fedroster.lab.training.cohort import CohortTrainer
from fedroster.lab.training.models import model_factory
from fedroster.lab.training.regression import SoftmaxRegression
from fedroster.lab.verdicts.verdicts import Chain, corrected
from fedroster.parts import ImageArray, Model, wants_losses
from fedroster.types import AnyEnvironment, FloatArray, Streams

FOLDER = Path(__file__).parent / "results" / "sooner"
MEASURED = ("target_s", "second_target_s", "final", "slowest_quarter", "sway", "least_share", "elapsed_s", "answers")
SOFTMAX: dict[str, Any] = {"dataset": "fashion-mnist", "model": "", "epochs": 1, "batch": 32, "tests": 10_000}


Steps = Mapping[str, float]
"""Local rate, size of the server's step, buffer and discount; the knob of a policy or a memory that has one."""


@dataclass(frozen=True, eq=False)
class Family:
    """Worlds, ways and claims that were registered and are corrected together, and the folder of their runs."""

    folder: Path
    registry: Mapping[str, Any]

    @classmethod
    def read(cls, name: str = "") -> Self:
        """The family of a name; the first has none."""
        return cls(FOLDER / name, json.loads((FOLDER / name / "registry.json").read_text()))

    @property
    def digest(self) -> str:
        """What every row carries."""
        return blake2b(json.dumps(self.registry, sort_keys=True).encode(), digest_size=8).hexdigest()

    @property
    def settings(self) -> tuple[str, ...]:
        """What is tuned."""
        return ("rate", "size", "buffer", "discount", *self.registry.get("settings", ()))

    def world(self, name: str) -> Mapping[str, Any]:
        """A world, with what the family's worlds have in common."""
        common: dict[str, Any] = {key: self.registry[key] for key in ("gamma_1", "couplings")}
        entry: dict[str, Any] = self.registry["worlds"][name]
        return SOFTMAX | common | {"ways": list(self.registry["ways"])} | entry

    def cells(self, worlds: Sequence[str]) -> Iterator[tuple[str, float, str]]:
        """World, coupling and way."""
        for name in worlds:
            entry = self.world(name)
            yield from itertools.product([name], entry["couplings"], entry["ways"])

    def wanted(self) -> Iterator[tuple[str, float, str, int]]:
        """The registered runs, seed by seed."""
        played = self.registry.get("played", list(self.registry["worlds"]))
        yield from ((*cell, seed) for seed in self.registry["seeds"] for cell in self.cells(played))

    def rows(self, name: str) -> list[dict[str, str]]:
        """What is played already; of another registry nothing, but what was tuned before a change that says so."""
        file = self.folder / name
        known = [self.digest, *(self.registry.get("before", ()) if name == "tuning.csv" else ())]
        if not file.exists():
            return []
        with file.open() as stream:
            return [row for row in csv.DictReader(stream) if row["registry"] in known]

    def keep(self, name: str, row: Mapping[str, Any]) -> None:
        """Append a row."""
        file = self.folder / name
        begins = not file.exists()
        with file.open("a") as stream:
            writer = csv.DictWriter(stream, list(row), lineterminator="\n")
            if begins:
                writer.writeheader()
            writer.writerow(row)

    def key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        """What names a run."""
        steps = (float(row[name]) for name in self.settings)
        return (row["world"], float(row["coupling"]), row["way"], int(row["seed"]), *steps)


@lru_cache(maxsize=2)
def data(name: str, tests: int) -> Dataset:
    """A data set with so many tests, read once."""
    whole = load_dataset(name)
    return replace(whole, test_x=whole.test_x[:tests], test_y=whole.test_y[:tests])


def logits_of(entry: Mapping[str, Any], parameters: Model) -> ImageArray:
    """What a model says of the tests, shape (tests, classes)."""
    images = data(entry["dataset"], entry["tests"]).test_x
    if not entry["model"]:
        return images.reshape(images.shape[0], -1) @ parameters["1.weight"].T + parameters["1.bias"]
    import torch

    module = model_factory(entry["model"])()
    module.load_state_dict({name: torch.tensor(value) for name, value in parameters.items()})
    with torch.no_grad():
        return np.asarray(module(torch.from_numpy(images)))


@lru_cache(maxsize=8)
def divided(family: Family, world: str, coupling: float, seed: int) -> Any:
    """Which samples each client holds, and which clients are the slowest quarter."""
    entry = family.world(world)
    network = make_scenario(entry["scenario"], entry["settings"])
    times_s, streams, labels = (
        usual_times(network, seed=seed),
        Streams(seed),
        data(entry["dataset"], entry["tests"]).train_y,
    )
    partition = dirichlet_partition(
        labels,
        num_clients=network.spec.num_clients,
        samples_per_client=entry["samples"],
        gamma_1=entry["gamma_1"],
        num_classes=10,
        rng=streams.at("partition"),
    )
    if coupling:
        partition = couple_with_speed(
            partition, labels, times_s, coupling=coupling, num_classes=10, rng=streams.at("coupling")
        )
    return partition, np.argsort(times_s)[-(times_s.shape[0] // 4) :]


def network_of(entry: Mapping[str, Any], *, everybody: bool = False) -> AnyEnvironment:
    """The network of a world; with a place for everybody where that is asked."""
    network = make_scenario(entry["scenario"], entry["settings"])
    if not everybody:
        return network
    return make_scenario(entry["scenario"], {**entry["settings"], "cohort_size": str(network.spec.num_clients)})


def a_round_of(family: Family, world: str, way: str) -> int:
    """Fillings that stand for a round: one for each place, where places are free."""
    return network_of(family.world(world)).spec.cohort_size if family.registry["ways"][way]["places"] else 1


def counted(family: Family, world: str, way: str, *, tuning: bool) -> int:
    """Rounds or fillings after which all ways of a world have given as many updates."""
    half = 2 if "full" in family.registry["ways"][way] else 1
    rounds: int = family.world(world)["tuning_rounds" if tuning else "rounds"] // half
    return rounds * a_round_of(family, world, way)


def course(
    family: Family, world: str, coupling: float, way: str, seed: int, steps: Steps, *, tuning: bool
) -> Iterator[FederatedRound]:
    """A run of a way: its rounds or fillings, and where equal time is a measure too, those that follow."""
    entry, spec, knob = family.world(world), family.registry["ways"][way], steps.get("knob", 0.0)
    network, held = network_of(entry, everybody="full" in spec), data(entry["dataset"], entry["tests"])
    rounds = counted(family, world, way, tuning=tuning)
    if not tuning:
        rounds *= entry.get("beyond", 1)
    a_round = a_round_of(family, world, way)
    policy = make_policy(spec["policy"].format(beta=entry["beta"], knob=knob))
    memory: dict[str, Any] = {
        name: knob if value == "knob" else value for name, value in (spec["memory"] or {}).items()
    }
    trainer = CohortTrainer(
        model=entry["model"] or SoftmaxRegression(math.prod(held.train_x.shape[1:]), 10),
        train_x=held.train_x,
        train_y=held.train_y,
        test_x=held.test_x,
        test_y=held.test_y,
        partition=divided(family, world, coupling, seed)[0],
        epochs=entry["epochs"],
        batch_size=entry["batch"],
        learning_rate=steps["rate"],
        measure_losses=wants_losses(policy),
    )
    return federate(
        policy,
        network,
        trainer,
        rounds=rounds,
        seed=seed,
        evaluate_every=family.registry["test_every_rounds"] * a_round,
        memory=UpdateMemory(**memory) if memory else None,
        server=ServerStep(size=steps["size"], momentum=spec.get("momentum", 0.0)),
        places=FreePlaces(buffer=int(steps["buffer"]), discount=steps["discount"]) if spec["places"] else None,
    )


def smoothed(accuracy: list[float]) -> FloatArray:
    """The mean of the last five tests, of fewer at the start."""
    return np.array([np.mean(accuracy[max(0, at - 4) : at + 1]) for at in range(len(accuracy))])


def play(
    family: Family, world: str, coupling: float, way: str, seed: int, steps: Steps, *, tuning: bool
) -> dict[str, Any]:
    """One run, as a row; in tuning it ends when the target is reached.

    All is measured at equal updates, but the accuracies at the registered times, for which the run goes on.
    """
    entry, full = family.world(world), family.registry["ways"][way].get("full")
    targets, chosen = entry["targets"], np.zeros(network_of(entry).spec.num_clients)
    times_s = () if tuning else entry.get("times_s", ())
    clock, accuracy, last, answers, tests = [], [], None, 0, 0
    equal = counted(family, world, way, tuning=tuning)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairnessWarning)
        for count, now in enumerate(course(family, world, coupling, way, seed, steps, tuning=tuning), 1):
            if math.isfinite(now.accuracy):
                clock.append(now.elapsed_s)
                accuracy.append(now.accuracy)
            if count <= equal:
                last, tests = now, len(accuracy)
                chosen[now.round.selection.links] += 1
                answers += int(np.count_nonzero(now.round.feedback.status == 0))
            if count >= equal and now.elapsed_s >= max(times_s, default=0.0):
                break
            if tuning and not full and math.isfinite(now.accuracy) and smoothed(accuracy)[-1] >= targets[0]:
                break
    assert last is not None
    mean = smoothed(accuracy)
    for each in times_s:
        if not clock[0] <= each <= now.elapsed_s:
            raise ValueError(f"{way} was tested from {clock[0]:.0f} to {now.elapsed_s:.0f} s; expected {each} s in it")
    then = {f"at_{each}_s": mean[np.searchsorted(clock, each, side="right") - 1] for each in times_s}
    clock, accuracy, mean = clock[:tests], accuracy[:tests], mean[:tests]
    reached = [next((at for at, value in zip(clock, mean, strict=True) if value >= t), math.inf) for t in targets]
    (partition, slow), held = divided(family, world, coupling, seed), data(entry["dataset"], entry["tests"])
    right = logits_of(entry, last.parameters).argmax(axis=1) == held.test_y
    by_class = np.bincount(held.test_y, right, 10) / np.bincount(held.test_y)
    least = np.argsort(chosen, kind="stable")[: slow.shape[0]]
    theirs = (class_counts(partition[group], held.train_y, 10).sum(axis=0) for group in (slow, least))
    slowest, least_served = (by_class @ labels / labels.sum() for labels in theirs)
    values = (*reached, np.mean(accuracy[-5:]), slowest, np.std(accuracy[-20:]))
    fair = chosen.sum() / chosen.shape[0]
    row = dict(zip(MEASURED, (*values, chosen.min() / fair, last.elapsed_s, answers), strict=True))
    named = {"world": world, "coupling": coupling, "way": way, "seed": seed}
    named |= {name: steps.get(name, 0.0) for name in family.settings}
    if "least_served" in family.registry.get("measured", ()):
        row["least_served"] = least_served
    row |= then
    return named | {name: f"{value:.6g}" for name, value in row.items()} | {"registry": family.digest}


def grid(family: Family, world: str, way: str) -> list[Steps]:
    """Steps that are tried for a way."""
    spec, places = family.registry["ways"][way], network_of(family.world(world)).spec.cohort_size
    buffers = [places if each == "m" else each for each in spec.get("buffers", [1])]
    sizes = family.registry["grids"][spec["grid"]]
    others = (spec.get(name, usual) for name, usual in (("discounts", [0.0]), ("knobs", [0.0])))
    tried = ((*steps, *rest) for steps, *rest in itertools.product(sizes, buffers, *others))
    return [dict(zip(family.settings, each, strict=False)) for each in tried]


def score(rows: list[dict[str, str]], *, full: bool) -> tuple[float, float]:
    """Less is better: mean seconds to the target, infinite where it is missed, then the final accuracy."""
    final = float(np.mean([float(row["final"]) for row in rows]))
    return (-final, 0.0) if full else (float(np.mean([float(row["target_s"]) for row in rows])), -final)


def tune(family: Family) -> dict[str, Steps]:
    """Try the grid on the first tuning seed, the best three on the others; return the best by world, coupling, way."""
    done = {family.key(row): row for row in family.rows("tuning.csv")}
    given = family.registry.get("given")
    best: dict[str, Steps] = json.loads((FOLDER / given).read_text()) if given else {}
    first, *others = family.registry["tuning_seeds"]

    def tried(where: tuple[str, float, str], steps: Steps, seed: int) -> dict[str, str]:
        """The row of one run on a tuning seed, played if it is not done."""
        world, coupling, way = where
        key = family.key({"world": world, "coupling": coupling, "way": way, "seed": seed, **steps})
        if key not in done:
            row = play(family, *where, seed, steps, tuning=True)
            family.keep("tuning.csv", row)
            print("tuned", *row.values(), flush=True)
            done[key] = {name: str(value) for name, value in row.items()}
        return done[key]

    for where in family.cells(family.registry["tuned_on"]):
        if (name := "{} {} {}".format(*where)) in best:
            continue
        choices, full = grid(family, where[0], where[2]), "full" in family.registry["ways"][where[2]]
        scores = {at: score([tried(where, steps, first)], full=full) for at, steps in enumerate(choices)}
        leaders = sorted(scores, key=scores.__getitem__)[:3]
        whole = {at: score([tried(where, choices[at], seed) for seed in (first, *others)], full=full) for at in leaders}
        best[name] = choices[min(whole, key=whole.__getitem__)]
    (family.folder / "tuned.json").write_text(json.dumps(best, indent=1) + "\n")
    return best


def register_runs(family: Family) -> None:
    """Play what is registered."""
    fixed, worlds = family.registry.get("steps"), list(family.registry["worlds"])  # one world after the other
    best = {} if fixed else json.loads((family.folder / "tuned.json").read_text())
    done = {(row["world"], float(row["coupling"]), row["way"], int(row["seed"])) for row in family.rows("runs.csv")}
    for world, coupling, way, seed in sorted(family.wanted(), key=lambda run: worlds.index(run[0])):
        if (world, coupling, way, seed) not in done:
            steps = fixed or best[f"{family.world(world)['steps_of']} {coupling} {way}"]
            family.keep("runs.csv", play(family, world, coupling, way, seed, steps, tuning=False))
            print("played", world, coupling, way, seed, flush=True)


def sooner_than(mine: FloatArray, theirs: FloatArray, whole_s: FloatArray, bound: float) -> FloatArray | None:
    """Logarithms by which a way is sooner than ``bound`` times another's seconds; None if it misses its target."""
    if np.isinf(mine).any():
        return None
    others = np.where(np.isinf(theirs), whole_s, theirs)
    return math.log(bound) - np.log(mine / others)


def p_of(advantage: FloatArray | None) -> float:
    """P of the hypothesis that the mean of an advantage is not above zero."""
    return 1.0 if advantage is None else float(ttest_1samp(advantage, 0.0, alternative="greater").pvalue)


def cost(sides: Sequence[FloatArray | None], chains: Sequence[Chain]) -> str:
    """About how many seeds would decide a claim in one direction or the other, in words."""
    needed = min(
        math.inf if side is None else max(seeds_needed(side, LEVEL / chain.times), side.shape[0] + 1)
        for side, chain in zip(sides, chains, strict=True)
    )
    return f"about {needed:.0f} seeds would decide" if needed < 1000 else "more seeds would not decide"


def medians(found: Mapping[tuple[str, float, str], Mapping[int, Mapping[str, str]]]) -> str:
    """What the ways of each world came to, medians over seeds, as Markdown."""
    at = [name for name in next(iter(next(iter(found.values())).values())) if name.startswith("at_")]
    heads = ["world", "coupling", "way", "target, s", "reached by", "final, %", "slowest quarter, %", "sway"]
    heads += ["least share", *(f"{name[3:-2]} s, %" for name in at)]
    if served := "least_served" in next(iter(next(iter(found.values())).values())):
        heads.insert(7, "least served, %")
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for where, rows in found.items():
        names = (*MEASURED, *at, *["least_served"] * served)
        of = {name: np.array([float(row[name]) for row in rows.values()]) for name in names}
        reached = f"{np.median(of['target_s']):.0f} | {np.isfinite(of['target_s']).sum()} of {len(rows)}"
        shown = ("final", "slowest_quarter", *["least_served"] * served, "sway")
        points = " | ".join(f"{100 * np.median(of[name]):.1f}" for name in shown)
        cells = [*map(str, where), reached, points, f"{np.median(of['least_share']):.2f}"]
        cells += [f"{100 * np.median(of[name]):.1f}" for name in at]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def judge(family: Family) -> None:
    """Test every claim, and correct for all of them; those of a withdrawn world count there, and are not played."""
    told = family.folder / "withdrawn.json"
    withdrawn = json.loads(told.read_text()) if told.exists() else {}
    found: dict[tuple[str, float, str], dict[int, dict[str, str]]] = defaultdict(dict)
    for row in family.rows("runs.csv"):
        if row["world"] not in withdrawn:
            found[row["world"], float(row["coupling"]), row["way"]][int(row["seed"])] = row
    missing = [run for run in family.wanted() if run[0] not in withdrawn and run[3] not in found[run[:3]]]
    if missing:
        raise SystemExit(f"{len(missing)} registered runs are missing, such as {missing[0]}; expected all: one look")
    tests, seeds = [], family.registry["seeds"]
    cells = {(world, coupling): None for world, coupling, _, _ in family.wanted()}  # in their order
    for (world, coupling), (name, claim) in itertools.product(cells, family.registry["claims"].items()):
        of, bound, sides = claim["measure"], claim["at_most"], []
        if world in withdrawn:
            tests.append((world, coupling, name, bound, math.nan, [None, None]))
            continue
        for side in ("way", "against"):
            sides.append(found.get((world, coupling, claim[side]), {}))
        if not all(sides):  # a claim is tested where both ways were played
            continue
        mine, theirs = (np.array([float(side[seed][of]) for seed in seeds]) for side in sides)
        if of in ("final", "slowest_quarter") or of.startswith("at_"):
            effect = 100 * (theirs - mine)
            both = [bound - effect, effect - bound]
        else:
            mine_s, theirs_s = (np.array([float(side[seed]["elapsed_s"]) for seed in seeds]) for side in sides)
            effect = np.array(
                [1.0 if np.isinf(a) and np.isinf(b) else a / b for a, b in zip(mine, theirs, strict=True)]
            )
            both = [sooner_than(mine, theirs, theirs_s, bound), sooner_than(theirs, mine, mine_s, 1.0 / bound)]
        tests.append((world, coupling, name, bound, float(np.median(effect)), both))
    holds, fails = (corrected([[p_of(test[-1][side])] for test in tests]) for side in (0, 1))
    lines = ["| world | coupling | claim | median | at most | verdict |", "| --- | --- | --- | --- | --- | --- |"]
    for (world, coupling, name, bound, middle, both), up, down in zip(tests, holds, fails, strict=True):
        (p_holds,), (p_fails,) = up.p, down.p
        verdict = "holds" if p_holds < LEVEL else "does not hold" if p_fails < LEVEL else "undecided"
        verdict += f" (p {min(p_holds, p_fails):.3f}{f'; {cost(both, (up, down))}' * (verdict == 'undecided')})"
        if world in withdrawn:
            continue
        lines.append(f"| {world} | {coupling} | {name} | {middle:.2f} | {bound} | {verdict} |")
    lines += [f"\nNot played, and counted in the correction: {world}. {why}." for world, why in withdrawn.items()]
    text = "\n".join(lines) + "\n\n" + medians(found)
    print(text)
    (family.folder / "verdicts.md").write_text(f"Registry {family.digest}.\n\n{text}\n")


if __name__ == "__main__":
    {"tune": tune, "play": register_runs, "judge": judge}[sys.argv[1]](Family.read(*sys.argv[2:]))
