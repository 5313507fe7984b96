"""The field's methods beside random draws: what ``docs/which-policy.md`` says of each, from the registered runs.

``python -m benchmarks.beside_random`` writes the last four cells of the page's rows: medians over seeds, lowest and
highest of the networks, and what the verdicts on devices' times say.  What a row says before them is written by hand.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.sooner import Family
from fedroster.types import FloatArray

PAGE = Path(__file__).parents[1] / "docs" / "which-policy.md"
JUDGED = "devices"
"""The family whose claims are about each way against random."""
APART = "signatures"
"""The family of ways that were played later: their claims are about three networks, and all must say the same."""
WAYS = {
    "rbcs-f": ["RBCS-F"],
    "floor": ["FLOOR"],
    "by-speed": ["by-speed"],
    "round-robin": ["round-robin"],
    "oort": ["Oort"],
    "power-of-choice": ["Power-of-Choice"],
    "tifl": ["TiFL"],
    "e3cs": ["E3CS"],
    "f3ast": ["F3AST"],
    "clustered-sampling": ["clustered sampling"],
    "size-weighted": ["size-weighted"],
    "participation-weights/...": ["FLOOR, weighed", "RBCS-F, weighed"],
    "refl": ["REFL"],
    "pisces": ["Pisces"],
    "optimal-client-sampling": ["optimal client sampling"],
    "cs-ucb": ["CS-UCB"],
    "afl": ["AFL"],
    "fedcor": ["FedCor"],
    "divfl": ["DivFL"],
    "hics-fl": ["HiCS-FL"],
}
"""Ways of the families that stand for a policy."""
FOR = {"is a tenth sooner than random": "time", "ends a point above random": "accuracy"}


def measured(family: Family, world: str, way: str, measure: str) -> FloatArray:
    """A measure of a way, by seed; empty where it was not played."""
    found = {
        int(row["seed"]): float(row[measure])
        for row in family.rows("runs.csv")
        if (row["world"], row["way"]) == (world, way)
    }
    return np.array([found[seed] for seed in sorted(found)])


def families(way: str) -> tuple[Family, ...]:
    """Those that played a way beside random; the last one's claims are about it."""
    first = Family.read("methods")
    return (first, Family.read(JUDGED)) if way in first.registry["ways"] else (Family.read(APART),)


def span(way: str, measure: str, digits: int) -> list[float]:
    """Medians beside random in each network: a ratio of seconds, or a difference of accuracies in points."""
    beside = []
    for family in families(way):
        for world in family.registry["worlds"]:
            mine, usual = (measured(family, world, each, measure) for each in (way, "random"))
            if mine.size:
                both = (float(np.median(mine)), float(np.median(usual)))
                beside.append(round(both[0] / both[1] if measure == "target_s" else 100 * (both[0] - both[1]), digits))
    return beside


def verdicts(way: str) -> list[dict[str, str]]:
    """What the judged family says of a way's claims in each world, by the claim's words; empty where none was made."""
    rows = [line.split(" | ") for line in (families(way)[-1].folder / "verdicts.md").read_text().splitlines()]
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        if len(row) == 6 and row[2] in (f"{way} {words}" for words in FOR):
            found.setdefault(row[0], {})[row[2].removeprefix(f"{way} ")] = row[5].split(" (")[0]
    return list(found.values())


def said(ways: list[str]) -> str:
    """For what tests show a policy to be by all its ways, and for what not."""
    of = [found for way in ways for found in verdicts(way)]
    shown = [
        f"{word} {what}"
        for verdict, word in (("holds", "for"), ("does not hold", "not for"))
        for claim, what in FOR.items()
        if all(each[claim] == verdict for each in of)
    ]
    return (", ".join(shown) or "undecided") if of else "not tested"


def cells(policy: str) -> list[str]:
    """The last four cells of a policy's row."""
    spans = []
    for measure, digits in (("target_s", 2), ("final", 1), ("slowest_quarter", 1)):
        spans.append([each for way in WAYS[policy] for each in span(way, measure, digits)])
    text = [
        "…".join(f"{value + 0.0:{form}}".replace("inf", "missed") for value in (min(values), max(values)))
        for values, form in zip(spans, (".2f", "+.1f", "+.1f"), strict=True)
    ]
    return [*text, said(WAYS[policy])]


def written(page: str) -> str:
    """The page, with the cells of every policy that was played."""
    lines = page.splitlines()
    for at, line in enumerate(lines):
        row = line.strip("| ").split(" | ")
        if len(row) == 7 and (name := row[0].strip("`")) in WAYS:
            lines[at] = f"| {' | '.join([*row[:3], *cells(name)])} |"
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
