"""Makes a paper's figures: runs, data, pictures, verdicts and one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from fedroster.catalogue import make_scenario
from fedroster.core.checks import check_integer
from fedroster.core.errors import ConfigurationError, UnknownNameError
from fedroster.study.experiment import ALONE, PROCESSES, Conditions, Done, Engine, finish, provenance
from fedroster.study.figures import save_png
from fedroster.study.measures import Trajectory
from fedroster.study.paper import Need, TrainingNeed, find_paper
from fedroster.study.partitions import partition_figure
from fedroster.study.report import (
    BAND_NOTE,
    TEST_NOTE,
    Report,
    Section,
    claims_table,
    picture,
    write_markdown,
    write_report,
)
from fedroster.study.statistics import Verdict, judge
from fedroster.study.store import machine, read_json, significant, write_json, write_table
from fedroster.study.tensorboard import write_scalars
from fedroster.study.training import TrainingCell, TrainingRun, rounds_table


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
    figures: Sequence[str] = (),
    seeds: Sequence[int],
    num_rounds: int | None = None,
    scale: str | None = None,
    training_seeds: Sequence[int] | None = None,
    folder: Path,
    command: str,
    workers: int | None = None,
    engine: Engine = PROCESSES,
    conditions: Conditions = ALONE,
    data_only: bool = False,
    tensorboard: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Reproduction:
    """Make figures of a paper.

    Finished runs, and checkpoints of others with training, are kept in ``folder/cells``.

    Args:
        paper: Name of its entry point, see :func:`fedroster.study.paper.papers`.
        figures: Names of its figures; empty for all without training, or with a scale for all.
        seeds: Seeds of the runs without training, at least two.
        num_rounds: T of every run; None for the paper's, or the scale's.
        scale: Size of the training experiments: "smoke", "cpu" or "full"; None for none.
        training_seeds: Seeds of the runs with training, at least two; None for the scale's.
        folder: Where to write.
        command: The command that makes it again, for the page.
        workers: Runs at the same time; None for one for each core.
        engine: Where they run.
        conditions: Device, data and the end of the time.
        data_only: Write tables only, no pictures and no page.
        tensorboard: Write the runs with training as TensorBoard scalars, too.
        progress: Called with the share of all rounds that is done.

    Raises:
        UnknownNameError: If there is no such paper, scale or figure.
        ConfigurationError: If there are too few seeds or rounds for intervals and slopes.
        PausedError: If the time was up first; the same call goes on.
    """
    described = find_paper(paper)
    if scale is not None and scale not in described.scales:
        raise UnknownNameError.of("scale", scale, described.scales)
    trained = described.scales[scale] if scale is not None else None
    recipes = {**described.figures, **(trained.figures if trained is not None else {})}
    for name in figures:
        if name not in recipes:
            if scale is None and any(name in size.figures for size in described.scales.values()):
                raise ConfigurationError(f"figure {name} needs training; expected a scale: smoke, cpu or full")
            raise UnknownNameError.of(f"figure of {paper}", name, recipes)
    chosen_seeds = {"seeds": seeds}
    if trained is not None:
        training_seeds = trained.seeds if training_seeds is None else training_seeds
        chosen_seeds["training seeds"] = training_seeds
    for name, values in chosen_seeds.items():
        if len(set(values)) < 2:
            raise ConfigurationError(f"{name} are {list(values)}; expected at least two different ones, for intervals")
    if num_rounds is not None:
        check_integer("rounds", num_rounds, least=10)
    _claim_folder(folder, paper, scale)
    wanted = [name for name in recipes if (name in figures if figures else not recipes[name].on_request)]
    needed: dict[Need | TrainingNeed, Sequence[Any]] = {}
    for name in wanted:
        for need in recipes[name].needs.values():
            if isinstance(need, Need):
                rounds = described.num_rounds if num_rounds is None else num_rounds
                needed[need] = need.cells(seeds=seeds, num_rounds=rounds)
            else:
                needed[need] = need.cells(seeds=training_seeds or (), num_rounds=num_rounds)
    finished = _run(needed, folder, workers, engine, conditions, progress)
    played = {need: [done.result for done in runs] for need, runs in finished.items()}
    runs_of = {name: {label: played[need] for label, need in recipes[name].needs.items()} for name in wanted}

    claims = {name: recipes[name].claims(runs_of[name]) for name in wanted}
    verdicts = judge([claim for name in wanted for claim in claims[name]])
    findings = {name: recipes[name].findings(runs_of[name]) for name in wanted}
    by_name = {verdict.claim.name: verdict for verdict in verdicts}
    lead = [_headline(verdicts), TEST_NOTE, BAND_NOTE]
    settings: dict[str, Any] = {
        "paper": paper,
        "scenarios": ", ".join(dict.fromkeys(need.scenario for need in needed)),
        "policies": ", ".join(dict.fromkeys(need.policy for need in needed)),
        "seeds": ", ".join(map(str, seeds)),
    }
    if lengths := {cell.num_rounds for need, cells in needed.items() if isinstance(need, Need) for cell in cells}:
        settings["rounds"] = " or ".join(map(str, sorted(lengths, reverse=True)))  # training's are told by task
    sections = []
    runs = [
        pair
        for need, cells in needed.items()
        if isinstance(need, TrainingNeed)
        for pair in zip(cells, played[need], strict=True)
    ]
    if trained is not None and runs:  # with a scale, figures without training may be asked for alone
        write_table(rounds_table(runs), folder / "runs.parquet")
        if tensorboard:
            write_scalars(runs, folder / "tensorboard")
        cells = [cell for cell, _ in runs]
        lead.insert(1, trained.remark)
        settings |= {"scale": scale, "training seeds": ", ".join(map(str, training_seeds or ()))}
        settings |= {"device": conditions.device} | _tasks(cells)
        if not data_only:
            sections.append(_partitions(cells, conditions, folder))
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
    settings |= machine() | {"code": provenance([done for runs in finished.values() for done in runs])}
    write_json(folder / "settings.json", {"command": command, **settings})
    if not data_only:
        # What comes first on the page comes first in the paper; how the data were divided, last.
        sections = sections[1:] + sections[:1] if runs else sections
        page = Report(described.title, lead, sections, command, settings, str(machine().get("fedroster", "")))
        write_report(page, folder / "report.html")
        write_markdown(page, folder / "index.md")
    return Reproduction(folder, verdicts, [sentence for name in wanted for sentence in findings[name]])


def _tasks(cells: Sequence[TrainingCell]) -> dict[str, str]:
    """What was trained, in words, by the task's name."""
    found = {}
    for task in dict.fromkeys(replace(cell.task, partition="iid") for cell in cells):
        local = task.local()
        own = [cell for cell in cells if cell.task.name == task.name]
        partitions = " or ".join(dict.fromkeys(cell.task.partition for cell in own))
        rounds = " or ".join(dict.fromkeys(str(cell.num_rounds) for cell in own))
        found[f"task {task.name}"] = (
            f"{local.dataset}, model {local.model}, {task.samples_per_client or local.samples_per_client} samples a "
            f"client, {task.epochs or local.epochs} epochs, batch {local.batch_size}, rate {local.learning_rate:g}, "
            f"partition {partitions}, rounds {rounds}"
        )
    return found


def _partitions(cells: Sequence[TrainingCell], conditions: Conditions, folder: Path) -> Section:
    """How each task's samples are divided among the clients, for the first seed."""
    pictures = []
    first = {(cell.task, cell.scenario): cell for cell in reversed(cells)}
    for (task, scenario), cell in sorted(first.items(), key=lambda item: repr(item[0])):
        num_clients = make_scenario(scenario, cell.settings).spec.num_clients
        counts = task.class_counts(num_clients=num_clients, seed=cell.seed, folder=conditions.data_dir)
        label = f"Clients' samples by class: {task.name}, {task.partition}"
        name = f"partition-{task.name}-{task.partition}".replace(":", "-").replace(".", "_")
        figure = partition_figure(counts, title=label)
        save_png(figure, folder / f"{name}.png")
        pictures.append(picture(figure, label, f"{name}.png"))
    return Section("Clients' data", text=["The first seed's partition; every seed has its own."], figures=pictures)


def _headline(verdicts: Sequence[Verdict]) -> str:
    def held(ours: bool) -> str:
        group = [verdict for verdict in verdicts if verdict.claim.ours is ours]
        return f"{sum(verdict.holds for verdict in group)} of {len(group)}"

    further = any(verdict.claim.ours for verdict in verdicts)
    if all(verdict.claim.ours for verdict in verdicts):
        return f"{held(True)} claims hold; all of them are ours." if further else "No claims are judged here."
    sentence = f"{held(False)} claims of the paper hold here."
    return sentence + (f" Of our own further questions, {held(True)}." if further else "")


def _claim_folder(folder: Path, paper: str, scale: str | None) -> None:
    """Refuse a folder that holds something else; nothing in it is overwritten then."""
    known = folder / "settings.json"
    if not known.exists():
        return
    found = read_json(known)
    if found.get("paper") != paper:
        raise ConfigurationError(
            f"{folder} does not hold a reproduction of {paper}: choose another folder or delete it"
        )
    if found.get("scale") not in (None, scale):
        raise ConfigurationError(
            f"{folder} holds training experiments of scale {found['scale']}; expected {scale}: "
            "choose another folder or delete it"
        )


def _run(
    needed: Mapping[Need | TrainingNeed, Sequence[Any]],
    folder: Path,
    workers: int | None,
    engine: Engine,
    conditions: Conditions,
    progress: Callable[[float], None] | None,
) -> dict[Need | TrainingNeed, list[Done[Any]]]:
    total = sum(cell.work for cells in needed.values() for cell in cells)
    before = 0.0
    finished: dict[Need | TrainingNeed, list[Done[Any]]] = {}
    for kind, result_type in ((Need, Trajectory), (TrainingNeed, TrainingRun)):  # short runs first
        keys = [need for need in needed if isinstance(need, kind)]
        cells = [cell for need in keys for cell in needed[need]]
        if not cells:
            continue
        work, rounds = sum(cell.work for cell in cells), sum(cell.num_rounds for cell in cells)

        def advance(done: int, before: float = before, work: float = work, rounds: int = rounds) -> None:
            if progress is not None:
                progress((before + work * done / rounds) / total)

        results = iter(
            finish(
                cells,
                workers=workers,
                engine=engine,
                folder=folder / "cells",
                result_type=result_type,
                conditions=conditions,
                progress=advance,
            )
        )
        finished |= {key: [next(results) for _ in needed[key]] for key in keys}
        before += work
    return finished


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
