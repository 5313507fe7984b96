"""Models sooner, the picture: accuracy over simulated time of five ways, on the seeds that steps were tuned on.

``python -m benchmarks.sooner_curves play`` writes ``results/sooner/curves.csv``, ``... draw`` the picture of the README
from it.  These seeds are not the registered ones, and nothing is tested here: the picture is no verdict.
"""

from __future__ import annotations

import csv
import json
import math
import sys
import warnings

import numpy as np

from benchmarks.sooner import FOLDER, Family, course, smoothed
from fedroster.errors import FairnessWarning
from fedroster.lab.pages.charts import Axes, Curve, lines, svg_of

FIRST = Family.read()
WORLD, COUPLING, LAST_S = "table-1", 0.9, 1500.0
WAYS = {
    "rounds, random": "random rounds",
    "rounds, random, momentum": "random rounds, momentum",
    "rounds, FLOOR": "FLOOR's rounds",
    "rounds, FLOOR, memory": "FLOOR's rounds, memory",
    "places, by speed, memory": "free places by speed, memory",
}
PICTURE = FOLDER.parents[2] / "docs" / "images" / "accuracy-over-time.svg"


def play() -> None:
    """Play each way with its tuned steps."""
    tuned = json.loads((FOLDER / "tuned.json").read_text())
    with (FOLDER / "curves.csv").open("w") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore", FairnessWarning)
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("way", "seed", "elapsed_s", "accuracy"))
        for way in WAYS:
            for seed in FIRST.registry["tuning_seeds"]:
                steps = tuned[f"{WORLD} {COUPLING} {way}"]
                for played in course(FIRST, WORLD, COUPLING, way, seed, steps, tuning=False):
                    if math.isfinite(played.accuracy) and played.elapsed_s <= 1.5 * LAST_S:
                        writer.writerow((way, seed, f"{played.elapsed_s:.1f}", f"{played.accuracy:.4f}"))


def draw() -> None:
    """Draw the means over seeds, between their least and greatest; accuracy is the mean of the last five tests."""
    with (FOLDER / "curves.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    curves = {}
    for way, label in WAYS.items():
        runs = []
        for seed in FIRST.registry["tuning_seeds"]:
            mine = [row for row in rows if row["way"] == way and int(row["seed"]) == seed]
            percent = 100 * smoothed([float(row["accuracy"]) for row in mine])
            runs.append((np.array([float(row["elapsed_s"]) for row in mine]), percent))
        at = np.linspace(max(clock[0] for clock, _ in runs), min(LAST_S, *(clock[-1] for clock, _ in runs)), 90)
        found = [np.interp(at, clock, percent) for clock, percent in runs]
        curves[label] = Curve(at, np.mean(found, axis=0), np.min(found, axis=0), np.max(found, axis=0))
    axes = Axes("simulated time, s", "test accuracy, %: mean and range of three seeds", range_y=(50.0, 84.0))
    PICTURE.write_text(svg_of(lines(curves, axes).to_dict(), "sooner") + "\n")


if __name__ == "__main__":
    {"play": play, "draw": draw}[sys.argv[1]]()
