"""What is registered of a paper before its runs: claims, margins, family, seeds and looks, in one file with a digest.

``registry.json`` beside this module is written by ``python -m fedroster.lab.verdicts.registry PAPER ...`` and committed
before the first run.  A run carries the digest of its paper's entry, so it cannot be older than the entry; a page says
whether all that stands on it is registered.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from fedroster.catalogue import make_scenario
from fedroster.lab.statistics import LEVEL
from fedroster.lab.trials.measures import Run
from fedroster.lab.verdicts.paper import FigureRecipe, Paper, find_paper
from fedroster.lab.verdicts.verdicts import Claim, Part
from fedroster.parts import write_text_atomically

FILE = Path(__file__).with_name("registry.json")
SIZE = "cpu"
"""Of the training experiments that are registered."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A paper's entry.

    Attributes:
        since: Day of the entry.
        looks: How often the runs may be judged.
        seeds: Of the runs without training and with it, and of figures that have their own, by their names.
        claims: What is tested of each claim, by its name: one family.
        before: Digests of the entry when it had fewer claims, seeds or looks, and nothing else was different; runs that
            carry one of them are still registered.
    """

    since: str
    looks: int
    seeds: Mapping[str, Sequence[int]]
    claims: Mapping[str, Mapping[str, Any]]
    before: Sequence[str] = ()

    @property
    def digest(self) -> str:
        """Of the entry."""
        whole = json.dumps([self.since, self.looks, self.seeds, self.claims], sort_keys=True)
        return blake2b(whole.encode(), digest_size=8).hexdigest()

    @property
    def family(self) -> int:
        """How many claims are corrected together; promises are not tested."""
        return sum("parts" in claim for claim in self.claims.values())

    @property
    def level(self) -> float:
        """Of each look: together they are wrong no more often than one."""
        return LEVEL / self.looks

    def faults(self, claims: Iterable[Claim], seeds: Mapping[str, Sequence[int]], carried: Iterable[str]) -> list[str]:
        """What on a page is not as it was registered: claims, seeds by figure or kind of run, digests of the runs."""
        found = [f"the claim {one.name} differs" for one in claims if tested(one) != self.claims.get(one.name)]
        found += [f"the seeds of {kind} differ" for kind, own in seeds.items() if own != self.seeds.get(kind)]
        if older := sum(digest not in (self.digest, *self.before) for digest in carried):
            found.insert(0, f"{older:,} runs are older than the registry")
        return found


def registered(paper: str) -> Registered | None:
    """The entry of a paper; None where there is none, as for papers of other packages."""
    entry = json.loads(FILE.read_text()).get(paper)
    return None if entry is None else Registered(**entry)


def tested(claim: Claim) -> dict[str, Any]:
    """What is tested of a claim, whatever its runs say."""
    parts = [
        f"{one.panel}|{one.where}; {f'margin {one.least}' if one.least else 'threshold'}; {one.unit}"
        for one in claim.parts
        if isinstance(one, Part)
    ]
    rest: dict[str, Any] = {"parts": parts} if parts else {"promises": len(claim.parts)}
    about = {"says": claim.statement, "place": claim.source, "tested": claim.measure, "asked_by": claim.asked_by}
    return about | {"changed": claim.changed} | rest


def planned(paper: Paper) -> dict[str, dict[str, Any]]:
    """All claims of a paper as they are tested, on runs that were never played."""
    recipes = {**paper.figures, **(paper.scales[SIZE].figures if SIZE in paper.scales else {})}
    return {
        claim.name: tested(claim) for recipe in recipes.values() for claim in recipe.claims(_made_up(paper, recipe))
    }


def _made_up(paper: Paper, recipe: FigureRecipe) -> dict[str, list[Run]]:
    """Two runs of noise for each label, as long as the real ones."""
    rng = np.random.default_rng(0)
    found = {}
    for label, need in recipe.needs.items():
        (trial,) = need.trials(seeds=[0], rounds=need.rounds or paper.rounds)
        size = make_scenario(trial.scenario, trial.settings).spec.num_clients
        found[label] = [_noise(rng, Run.unplayed(size, trial.rounds)) for _ in range(2)]
    return found


def _noise(rng: np.random.Generator, run: Run) -> Run:
    for name in Run.__slots__:
        values = getattr(run, name)
        values[:] = (
            rng.integers(30, 99, values.shape) if values.dtype.kind == "i" else rng.uniform(0.1, 0.9, values.shape)
        )
    return run


def main(names: Sequence[str]) -> None:
    """Enter papers, or enter them again, with the seeds, looks and day that the file already has.

    To add claims: enter again; the digest of before is kept where none of its claims is different now.
    """
    known = json.loads(FILE.read_text())
    for name in names:
        entry = {"since": "", "looks": 1, "seeds": {}, "claims": {}, "before": []} | known.get(name, {})
        old, claims = Registered(**entry), planned(find_paper(name))
        before = [*old.before, old.digest] if claims != old.claims else old.before
        stays = all(claims.get(claim) == said for claim, said in old.claims.items())
        known[name] = entry | {"claims": claims, "before": before if stays and old.claims else []}
    write_text_atomically(FILE, json.dumps(known, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
