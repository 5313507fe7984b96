"""Makes a paper's figures: runs, data, pictures, verdicts and one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fedroster.core.checks import check_integer
from fedroster.core.errors import ConfigurationError, UnknownNameError
from fedroster.study import cocs, rbcs_f
from fedroster.study.experiment import Cell, run_cells
from fedroster.study.figures import save_png
from fedroster.study.measures import Trajectory
from fedroster.study.recipe import Need, Paper
from fedroster.study.report import TEST_NOTE, Report, Section, claims_table, picture, write_markdown, write_report
from fedroster.study.statistics import Verdict, judge
from fedroster.study.store import machine, read_json, significant, write_json, write_table

PAPERS: Mapping[str, Paper] = {"rbcs-f": rbcs_f.PAPER, "cocs": cocs.PAPER}
"""Papers by the names that the command line uses."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What was made.

    Attributes:
        folder: Where it lies.
        verdicts: The paper's claims, judged.
        findings: What else a reader should know.
    """

    folder: Path
    verdicts: Sequence[Verdict]
    findings: Sequence[str]


def reproduce(
    paper: str,
    *,
    figures: Sequence[str],
    seeds: Sequence[int],
    num_rounds: int | None = None,
    folder: Path,
    command: str,
    workers: int | None = None,
    data_only: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Reproduction:
    """Make figures of a paper.

    Args:
        paper: Name in :data:`PAPERS`.
        figures: Names of its figures; empty for all.
        seeds: Seeds, at least two.
        num_rounds: T of a run; None for the paper's.
        folder: Where to write.
        command: The command that makes it again, for the page.
        workers: Processes; None for one for each core.
        data_only: Write tables only, no pictures and no page.
        progress: Called with the number of finished runs and of all runs.

    Raises:
        UnknownNameError: If there is no such paper or figure.
        ConfigurationError: If there are too few seeds or rounds for intervals and slopes.
    """
    if paper not in PAPERS:
        raise UnknownNameError.of("paper", paper, PAPERS)
    recipes = PAPERS[paper].figures
    num_rounds = PAPERS[paper].num_rounds if num_rounds is None else num_rounds
    for name in figures:
        if name not in recipes:
            raise UnknownNameError.of(f"figure of {paper}", name, recipes)
    if len(set(seeds)) < 2:
        raise ConfigurationError(f"seeds are {list(seeds)}; expected at least two different ones, for intervals")
    check_integer("rounds", num_rounds, least=10)
    _claim_folder(folder, paper)
    wanted = [name for name in recipes if not figures or name in figures]
    needed = {
        need: need.cells(seeds=seeds, num_rounds=num_rounds) for name in wanted for need in recipes[name].needs.values()
    }
    played = _run(needed, workers, progress)
    runs_of = {name: {label: played[need] for label, need in recipes[name].needs.items()} for name in wanted}

    claims = {name: recipes[name].claims(runs_of[name]) for name in wanted}
    verdicts = judge([claim for name in wanted for claim in claims[name]])
    findings = {name: recipes[name].findings(runs_of[name]) for name in wanted}
    by_name = {verdict.claim.name: verdict for verdict in verdicts}
    sections = []
    for name in wanted:
        recipe = recipes[name]
        product = recipe.draw(runs_of[name])
        write_table(significant(product.data), folder / f"figure-{name}.csv")
        if data_only:
            continue
        save_png(product.figure, folder / f"figure-{name}.png")
        own = [by_name[claim.name] for claim in claims[name]]
        sections.append(
            Section(
                title=recipe.title,
                text=findings[name],
                figures=[picture(product.figure, recipe.title, f"figure-{name}.png")],
                table=claims_table(own) if own else None,
            )
        )
    write_table(_claims_frame(verdicts), folder / "claims.csv")
    settings = {
        "paper": paper,
        "scenarios": ", ".join(dict.fromkeys(need.scenario for need in needed)),
        "policies": ", ".join(dict.fromkeys(need.policy for need in needed)),
        "rounds": num_rounds,
        "seeds": ", ".join(map(str, seeds)),
        **machine(),
    }
    write_json(folder / "settings.json", {"command": command, **settings})
    if not data_only:
        lead = [_headline(verdicts), TEST_NOTE]
        page = Report(PAPERS[paper].title, lead, sections, command, settings, str(machine().get("fedroster", "")))
        write_report(page, folder / "report.html")
        write_markdown(page, folder / "index.md")
    return Reproduction(folder, verdicts, [sentence for name in wanted for sentence in findings[name]])


def _headline(verdicts: Sequence[Verdict]) -> str:
    def held(ours: bool) -> str:
        group = [verdict for verdict in verdicts if verdict.claim.ours is ours]
        return f"{sum(verdict.holds for verdict in group)} of {len(group)}"

    sentence = f"{held(False)} claims of the paper hold here."
    further = any(verdict.claim.ours for verdict in verdicts)
    return sentence + (f" Of our own further questions, {held(True)}." if further else "")


def _claim_folder(folder: Path, paper: str) -> None:
    """Refuse a folder that holds something else; nothing in it is overwritten then."""
    known = folder / "settings.json"
    if known.exists() and read_json(known).get("paper") != paper:
        raise ConfigurationError(
            f"{folder} does not hold a reproduction of {paper}: choose another folder or delete it"
        )


def _run(
    needed: Mapping[Need, Sequence[Cell]],
    workers: int | None,
    progress: Callable[[int, int], None] | None,
) -> dict[Need, list[Trajectory]]:
    cells = [cell for group in needed.values() for cell in group]
    results: dict[int, Trajectory] = {}
    for finished, done in enumerate(run_cells(cells, workers=workers), start=1):
        results[done.index] = done.result
        if progress is not None:
            progress(finished, len(cells))
    in_order = iter(range(len(cells)))
    return {key: [results[next(in_order)] for _ in group] for key, group in needed.items()}


def _claims_frame(verdicts: Sequence[Verdict]) -> pl.DataFrame:
    rows = [
        {
            "claim": verdict.claim.name,
            "source": verdict.claim.source,
            "statement": verdict.claim.statement,
            "measure": verdict.claim.measure,
            "margin": verdict.weakest.mean,
            "margin_low": verdict.weakest.low,
            "margin_high": verdict.weakest.high,
            "p_value": verdict.p_value,
            "p_holm": verdict.adjusted_p,
            "asked_by": "us" if verdict.claim.ours else "paper",
            "verdict": verdict.word,
        }
        for verdict in verdicts
    ]
    names = (
        "claim",
        "source",
        "statement",
        "measure",
        "margin",
        "margin_low",
        "margin_high",
        "p_value",
        "p_holm",
        "asked_by",
    )
    return pl.DataFrame(rows) if rows else pl.DataFrame({name: [] for name in (*names, "verdict")})
