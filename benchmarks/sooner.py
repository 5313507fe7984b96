"""Models sooner: the registered comparison of rounds with free places, and of averages with an update memory.

``python -m benchmarks.sooner tune`` finds the steps of each way on seeds of their own, ``... play`` plays the
registered runs, and ``... judge`` tests the registered claims, once, when all runs are there.  Each goes on where it
was stopped.  What is claimed, of what, and by which test stands in ``results/sooner/registry.json``, which was
committed before the first run; every row carries its digest.  Needs Fashion-MNIST in ``FEDROSTER_DATA``.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import ttest_1samp

from fedroster import make_policy, make_scenario
from fedroster.aggregation.memory import UpdateMemory
from fedroster.aggregation.places import FreePlaces
from fedroster.aggregation.server import ServerStep
from fedroster.errors import FairnessWarning
from fedroster.lab.data.dataset import Dataset
from fedroster.lab.data.load import load_dataset
from fedroster.lab.data.partition import class_counts, couple_with_speed, dirichlet_partition
from fedroster.lab.federated import FederatedRound, federate
from fedroster.lab.task import usual_times
from fedroster.lab.training.cohort import CohortTrainer
from fedroster.lab.training.regression import SoftmaxRegression
from fedroster.types import AnyEnvironment, FloatArray, Streams

FOLDER = Path(__file__).parent / "results" / "sooner"
REGISTRY: Mapping[str, Any] = json.loads((FOLDER / "registry.json").read_text())
DIGEST = blake2b(json.dumps(REGISTRY, sort_keys=True).encode(), digest_size=8).hexdigest()
SETTINGS = ("rate", "size", "buffer", "discount")
MEASURED = ("target_s", "second_target_s", "final", "slowest_quarter", "sway", "least_share", "elapsed_s", "answers")
COLUMNS = ("world", "coupling", "way", "seed", *SETTINGS, *MEASURED, "registry")


Steps = Mapping[str, float]
"""Local rate, size of the server's step, buffer and discount."""


@cache
def data() -> Dataset:
    """Fashion-MNIST, read once."""
    return load_dataset("fashion-mnist")


@cache
def divided(world: str, coupling: float, seed: int) -> Any:
    """Which samples each client holds, and which clients are the slowest quarter."""
    entry = REGISTRY["worlds"][world]
    network = make_scenario(entry["scenario"], entry["settings"])
    times_s, streams = usual_times(network, seed=seed), Streams(seed)
    partition = dirichlet_partition(
        data().train_y,
        num_clients=network.spec.num_clients,
        samples_per_client=entry["samples"],
        gamma_1=REGISTRY["gamma_1"],
        num_classes=10,
        rng=streams.at("partition"),
    )
    if coupling:
        partition = couple_with_speed(
            partition, data().train_y, times_s, coupling=coupling, num_classes=10, rng=streams.at("coupling")
        )
    return partition, np.argsort(times_s)[-(times_s.shape[0] // 4) :]


def trainer_of(world: str, coupling: float, seed: int, rate: float) -> CohortTrainer:
    """The clients of one run."""
    return CohortTrainer(
        model=SoftmaxRegression(784, 10),
        train_x=data().train_x,
        train_y=data().train_y,
        test_x=data().test_x,
        test_y=data().test_y,
        partition=divided(world, coupling, seed)[0],
        epochs=1,
        batch_size=32,
        learning_rate=rate,
        measure_losses=False,
    )


def network_of(world: str, *, everybody: bool = False) -> AnyEnvironment:
    """The network of a world; with a place for everybody where that is asked."""
    entry = REGISTRY["worlds"][world]
    network = make_scenario(entry["scenario"], entry["settings"])
    if not everybody:
        return network
    return make_scenario(entry["scenario"], {**entry["settings"], "cohort_size": str(network.spec.num_clients)})


def course(world: str, coupling: float, way: str, seed: int, steps: Steps, *, tuning: bool) -> Iterator[FederatedRound]:
    """A run of a way: its rounds or fillings."""
    entry, spec = REGISTRY["worlds"][world], REGISTRY["ways"][way]
    network = network_of(world, everybody="full" in spec)
    rounds = entry["tuning_rounds" if tuning else "rounds"] // (2 if "full" in spec else 1)
    a_round = network.spec.cohort_size if spec["places"] else 1  # fillings
    return federate(
        make_policy(spec["policy"].format(beta=entry["beta"])),
        network,
        trainer_of(world, coupling, seed, steps["rate"]),
        rounds=rounds * a_round,
        seed=seed,
        evaluate_every=REGISTRY["test_every_rounds"] * a_round,
        memory=UpdateMemory(**spec["memory"]) if spec["memory"] else None,
        server=ServerStep(size=steps["size"], momentum=spec.get("momentum", 0.0)),
        places=FreePlaces(buffer=int(steps["buffer"]), discount=steps["discount"]) if spec["places"] else None,
    )


def smoothed(accuracy: list[float]) -> FloatArray:
    """The mean of the last five tests, of fewer at the start."""
    return np.array([np.mean(accuracy[max(0, at - 4) : at + 1]) for at in range(len(accuracy))])


def play(world: str, coupling: float, way: str, seed: int, steps: Steps, *, tuning: bool) -> dict[str, Any]:
    """One run, as a row; in tuning it ends when the target is reached."""
    targets, chosen = REGISTRY["worlds"][world]["targets"], np.zeros(network_of(world).spec.num_clients)
    clock, accuracy, last, answers = [], [], None, 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FairnessWarning)
        for last in course(world, coupling, way, seed, steps, tuning=tuning):
            chosen[last.round.selection.links] += 1
            answers += int(np.count_nonzero(last.round.feedback.status == 0))
            if math.isfinite(last.accuracy):
                clock.append(last.elapsed_s)
                accuracy.append(last.accuracy)
                if tuning and not REGISTRY["ways"][way].get("full") and smoothed(accuracy)[-1] >= targets[0]:
                    break
    assert last is not None
    mean = smoothed(accuracy)
    reached = [next((at for at, value in zip(clock, mean, strict=True) if value >= t), math.inf) for t in targets]
    partition, slow = divided(world, coupling, seed)
    logits = data().test_x.reshape(-1, 784) @ last.parameters["1.weight"].T + last.parameters["1.bias"]
    right = logits.argmax(axis=1) == data().test_y
    by_class = np.bincount(data().test_y, right, 10) / np.bincount(data().test_y, minlength=10)
    held = class_counts(partition[slow], data().train_y, 10).sum(axis=0)
    values = (*reached, np.mean(accuracy[-5:]), by_class @ held / held.sum(), np.std(accuracy[-20:]))
    fair = chosen.sum() / chosen.shape[0]
    row = dict(zip(MEASURED, (*values, chosen.min() / fair, last.elapsed_s, answers), strict=True))
    named = {"world": world, "coupling": coupling, "way": way, "seed": seed, **steps}
    return named | {name: f"{value:.6g}" for name, value in row.items()} | {"registry": DIGEST}


def rows_of(name: str) -> list[dict[str, str]]:
    """What is played already; of another registry nothing."""
    file = FOLDER / name
    if not file.exists():
        return []
    with file.open() as stream:
        return [row for row in csv.DictReader(stream) if row["registry"] == DIGEST]


def keep(name: str, row: Mapping[str, Any]) -> None:
    """Append a row."""
    file = FOLDER / name
    begins = not file.exists()
    with file.open("a") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        if begins:
            writer.writeheader()
        writer.writerow(row)


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What names a run."""
    return (row["world"], float(row["coupling"]), row["way"], int(row["seed"]), *(float(row[n]) for n in SETTINGS))


def grid(world: str, way: str) -> list[Steps]:
    """Steps that are tried for a way."""
    spec, places = REGISTRY["ways"][way], network_of(world).spec.cohort_size
    buffers = [places if each == "m" else each for each in spec.get("buffers", [1])]
    tried = itertools.product(REGISTRY["grids"][spec["grid"]], buffers, spec.get("discounts", [0.0]))
    return [
        {"rate": rate, "size": size, "buffer": buffer, "discount": discount} for (rate, size), buffer, discount in tried
    ]


def score(rows: list[dict[str, str]]) -> tuple[float, float]:
    """Less is better: mean seconds to the target, infinite where it is missed, then the final accuracy."""
    final = float(np.mean([float(row["final"]) for row in rows]))
    if REGISTRY["ways"][rows[0]["way"]].get("full"):
        return -final, 0.0
    return float(np.mean([float(row["target_s"]) for row in rows])), -final


def tried(
    done: dict[tuple[Any, ...], dict[str, str]], where: tuple[str, float, str], steps: Steps, seed: int
) -> dict[str, str]:
    """The row of one run on a tuning seed, played if it is not done."""
    key = key_of({"world": where[0], "coupling": where[1], "way": where[2], "seed": seed, **steps})
    if key not in done:
        row = play(*where, seed, steps, tuning=True)
        keep("tuning.csv", row)
        print("tuned", *row.values(), flush=True)
        done[key] = {name: str(value) for name, value in row.items()}
    return done[key]


def tune() -> dict[str, Steps]:
    """Try the grid on the first tuning seed, the best three on the others; return the best by world, coupling, way."""
    done = {key_of(row): row for row in rows_of("tuning.csv")}
    best: dict[str, Steps] = {}
    first, *others = REGISTRY["tuning_seeds"]
    for world, coupling, way in itertools.product(REGISTRY["tuned_on"], REGISTRY["couplings"], REGISTRY["ways"]):
        where, choices = (world, coupling, way), grid(world, way)
        scores = {at: score([tried(done, where, steps, first)]) for at, steps in enumerate(choices)}
        leaders = sorted(scores, key=scores.__getitem__)[:3]
        whole = {at: score([tried(done, where, choices[at], seed) for seed in (first, *others)]) for at in leaders}
        best[f"{world} {coupling} {way}"] = choices[min(whole, key=whole.__getitem__)]
    (FOLDER / "tuned.json").write_text(json.dumps(best, indent=1) + "\n")
    return best


def wanted() -> Iterator[tuple[str, float, str, int]]:
    """The registered runs, seed by seed."""
    yield from (
        (world, coupling, way, seed)
        for seed in REGISTRY["seeds"]
        for world, coupling, way in itertools.product(REGISTRY["worlds"], REGISTRY["couplings"], REGISTRY["ways"])
    )


def register_runs() -> None:
    """Play what is registered."""
    best = json.loads((FOLDER / "tuned.json").read_text())
    done = {(row["world"], float(row["coupling"]), row["way"], int(row["seed"])) for row in rows_of("runs.csv")}
    for world, coupling, way, seed in wanted():
        if (world, coupling, way, seed) in done:
            continue
        steps = best[f"{REGISTRY['worlds'][world]['steps_of']} {coupling} {way}"]
        keep("runs.csv", play(world, coupling, way, seed, steps, tuning=False))
        print("played", world, coupling, way, seed, flush=True)


def p_below(mine: FloatArray, theirs: FloatArray, whole_s: FloatArray, bound: float) -> float:
    """P of the hypothesis that a way needs more than ``bound`` times another's seconds; 1 if it misses its target."""
    if np.isinf(mine).any():
        return 1.0
    others = np.where(np.isinf(theirs), whole_s, theirs)
    return float(ttest_1samp(np.log(mine / others), math.log(bound), alternative="less").pvalue)


def holm(values: list[float]) -> list[float]:
    """P values corrected for their number."""
    found, level = [0.0] * len(values), 0.0
    for place, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        level = found[at] = max(level, min(1.0, values[at] * (len(values) - place)))
    return found


def judge() -> None:
    """Test every claim, and correct for all of them."""
    found: dict[tuple[str, float, str], dict[int, dict[str, str]]] = defaultdict(dict)
    for row in rows_of("runs.csv"):
        found[row["world"], float(row["coupling"]), row["way"]][int(row["seed"])] = row
    missing = [run for run in wanted() if run[3] not in found[run[:3]]]
    if missing:
        raise SystemExit(f"{len(missing)} registered runs are missing, such as {missing[0]}; expected all: one look")
    tests = []
    for world, coupling in itertools.product(REGISTRY["worlds"], REGISTRY["couplings"]):
        for name, claim in REGISTRY["claims"].items():
            of, seeds, bound = claim["measure"], REGISTRY["seeds"], claim["at_most"]
            sides = [found[world, coupling, claim[side]] for side in ("way", "against")]
            mine, theirs = (np.array([float(side[seed][of]) for seed in seeds]) for side in sides)
            if of == "final":
                effect = 100 * (theirs - mine)
                p = [float(ttest_1samp(effect, bound, alternative=way).pvalue) for way in ("less", "greater")]
            else:
                mine_s, theirs_s = (np.array([float(side[seed]["elapsed_s"]) for seed in seeds]) for side in sides)
                effect = np.array(
                    [1.0 if np.isinf(a) and np.isinf(b) else a / b for a, b in zip(mine, theirs, strict=True)]
                )
                p = [p_below(mine, theirs, theirs_s, bound), p_below(theirs, mine, mine_s, 1.0 / bound)]
            tests.append((world, coupling, name, bound, float(np.median(effect)), *p))
    holds, fails = holm([test[5] for test in tests]), holm([test[6] for test in tests])
    lines = ["| world | coupling | claim | median | at most | verdict |", "| --- | --- | --- | --- | --- | --- |"]
    for (world, coupling, name, bound, middle, *_), up, down in zip(tests, holds, fails, strict=True):
        verdict = "holds" if up < 0.05 else "does not hold" if down < 0.05 else "undecided"
        lines.append(f"| {world} | {coupling} | {name} | {middle:.2f} | {bound} | {verdict} (p {min(up, down):.3f}) |")
    text = "\n".join(lines)
    print(text)
    (FOLDER / "verdicts.md").write_text(f"Registry {DIGEST}.\n\n{text}\n")


if __name__ == "__main__":
    {"tune": tune, "play": register_runs, "judge": judge}[sys.argv[1]]()
