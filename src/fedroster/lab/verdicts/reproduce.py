"""Makes a paper's figures: runs, data, pictures, verdicts and one page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from fedroster.errors import ConfigurationError, UnknownNameError
from fedroster.lab.pages.charts import Figure, data_of
from fedroster.lab.pages.report import BAND_NOTE, Report, Section, picture, write_page
from fedroster.lab.trials.measures import Run
from fedroster.lab.trials.processes import in_processes
from fedroster.lab.trials.run import Done, Engine, finish, provenance
from fedroster.lab.trials.store import machine, read_json, rounds_table, write_json, write_table
from fedroster.lab.trials.trial import ALONE, Conditions, Trial
from fedroster.lab.verdicts.claims_page import by_place, claims_sections, headline, numbers_of, verdicts_figure
from fedroster.lab.verdicts.paper import FigureRecipe, Need, Paper, Runs, Scale, find_paper
from fedroster.lab.verdicts.verdicts import Verdict, judge
from fedroster.parts import check_integer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Order:
    """Which figures of a paper are wanted, and in which size.

    Attributes:
        paper: Name of its entry point, see :func:`fedroster.lab.verdicts.paper.papers`.
        seeds: Seeds of the runs without training, at least two.
        figures: Names of its figures; empty for all without training, or with a scale for all, but for those that are
            made on request only.
        rounds: T of every run; None for the paper's, or the scale's.
        scale: Size of the training experiments: "smoke", "cpu" or "full"; None for none.
        training_seeds: Seeds of the runs with training, at least two; None for the scale's.
    """

    paper: str
    seeds: Sequence[int]
    figures: Sequence[str] = ()
    rounds: int | None = None
    scale: str | None = None
    training_seeds: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """What is written beside claims and settings.

    Attributes:
        pages: Pictures, and the page as HTML and as Markdown.
        tables: The data of every figure, and the rounds of every run with training.
    """

    pages: bool = True
    tables: bool = False


PAGES = Output()
"""What is published: no tables that the command can make again."""


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What was made, and where: the paper's claims, judged, and what else a reader should know."""

    folder: Path
    verdicts: Sequence[Verdict]
    findings: Sequence[str]


def reproduce(
    order: Order,
    folder: Path,
    *,
    command: str,
    output: Output = PAGES,
    workers: int | None = None,
    engine: Engine = in_processes,
    conditions: Conditions = ALONE,
    progress: Callable[[float], None] | None = None,
) -> Reproduction:
    """Make figures of a paper.

    Finished runs, and checkpoints of others with training, are kept in ``folder/trials``.

    Args:
        order: What is wanted.
        folder: Where to write.
        command: The command that makes it again, for the page.
        output: What is written.
        workers: Runs at the same time; None for one for each core.
        engine: Where they run.
        conditions: Device, data and the end of the time.
        progress: Called with the share of all rounds that is done.

    Raises:
        UnknownNameError: If there is no such paper, scale or figure.
        ConfigurationError: If there are too few seeds or rounds for intervals and slopes.
        PausedError: If the time was up first; the same call continues.
    """
    plan = _planned(order)
    _claim_folder(folder, order)
    finished = _run(plan.trials, folder, progress, workers=workers, engine=engine, conditions=conditions)
    made = _Made(plan, finished)
    settings = {
        "command": command,
        **_settings(made, conditions),
        **machine(),
        "code": provenance([done for runs in finished.values() for done in runs]),
    }
    figures = made.figures()
    write_table(_claims_frame(made.verdicts), folder / "claims.csv")
    write_json(folder / "settings.json", settings)
    trained = made.trained()
    if output.tables:
        for name, figure in figures.items():
            write_table(data_of(figure), folder / f"figure-{name}.csv")
        if trained:
            write_table(rounds_table(trained, _described).drop("decision_s", "budget_used"), folder / "runs.parquet")
    if output.pages:
        shown = {name: _section(made, name, figures.get(name), folder) for name in plan.recipes}
        sections = _in_order(made, shown, folder)
        found, *lead = headline(made.verdicts)
        remarks = _remarks(plan, [trial for trial, _ in trained])
        sections.append(Section("Notes", notes=[*remarks, BAND_NOTE, *filter(None, [plan.paper.citation])]))
        details = {name: value for name, value in settings.items() if name != "command"}
        version = str(machine().get("fedroster", ""))
        numbers = numbers_of(made.verdicts)
        page = Report(plan.paper.title, lead, sections, command, details, version, found, numbers)
        write_page(page, folder)
    return Reproduction(folder, made.verdicts, [sentence for found in made.findings.values() for sentence in found])


@dataclass(frozen=True, slots=True)
class _Plan:
    """An order that can be carried out: its recipes by name, and the runs of each need."""

    order: Order
    paper: Paper
    scale: Scale | None
    recipes: Mapping[str, FigureRecipe]
    trials: Mapping[Need, Sequence[Trial]]


def _planned(order: Order) -> _Plan:
    paper, scale = find_paper(order.paper), None
    if order.scale is not None:
        if order.scale not in paper.scales:
            raise UnknownNameError.of("scale", order.scale, paper.scales)
        scale = paper.scales[order.scale]
        if order.training_seeds is None:
            order = replace(order, training_seeds=scale.seeds)
    known = {**paper.figures, **(scale.figures if scale is not None else {})}
    for name in order.figures:
        if name not in known:
            if scale is None and any(name in size.figures for size in paper.scales.values()):
                raise ConfigurationError(f"figure {name} needs training; expected a scale: smoke, cpu or full")
            raise UnknownNameError.of(f"figure of {order.paper}", name, known)
    for what, seeds in {"seeds": order.seeds, "training seeds": order.training_seeds}.items():
        if seeds is not None and len(set(seeds)) < 2:
            raise ConfigurationError(f"{what} are {list(seeds)}; expected at least two different ones, for intervals")
    if order.rounds is not None:
        check_integer("rounds", order.rounds, least=10)
    wanted = {
        name: recipe
        for name, recipe in known.items()
        if (name in order.figures if order.figures else not recipe.on_request)
    }
    trials = {}
    for recipe in wanted.values():
        for need in recipe.needs.values():
            trials[need] = need.trials(
                seeds=order.seeds if need.task is None else order.training_seeds or (),
                rounds=order.rounds or need.rounds or paper.rounds,
            )
    return _Plan(order, paper, scale, wanted, trials)


class _Made:
    """What the runs of a plan say."""

    def __init__(self, plan: _Plan, finished: Mapping[Need, Sequence[Done]]) -> None:
        self.plan = plan
        self._played = {need: [done.run for done in runs] for need, runs in finished.items()}
        self.claims = {
            name: [replace(claim, training=plan.recipes[name].trains) for claim in claims]
            for name, claims in self._each(lambda recipe: recipe.claims).items()
        }
        self.verdicts = judge([claim for claims in self.claims.values() for claim in claims])
        self.findings = self._each(lambda recipe: recipe.findings)

    def _each(self, what: Callable[[FigureRecipe], Callable[[Runs], T] | None]) -> dict[str, T]:
        """What a part of each recipe, if it has this part, makes of its runs."""
        return {
            name: make({label: self._played[need] for label, need in recipe.needs.items()})
            for name, recipe in self.plan.recipes.items()
            if (make := what(recipe)) is not None
        }

    def figures(self) -> dict[str, Figure]:
        """The figures that are drawn."""
        return self._each(lambda recipe: recipe.draw)

    def trained(self) -> list[tuple[Trial, Run]]:
        """The runs with training."""
        trained = ((need, trials) for need, trials in self.plan.trials.items() if need.task is not None)
        return [pair for need, trials in trained for pair in zip(trials, self._played[need], strict=True)]


def _settings(made: _Made, conditions: Conditions) -> dict[str, Any]:
    """What the numbers depend on, but for the machine."""
    order, trials = made.plan.order, made.plan.trials
    settings: dict[str, Any] = {
        "paper": order.paper,
        "scenarios": ", ".join(dict.fromkeys(need.scenario for need in trials)),
        "policies": ", ".join(dict.fromkeys(need.policy for need in trials)),
    }
    if lengths := {trial.rounds for own in trials.values() for trial in own if trial.task is None}:
        settings["seeds"] = ", ".join(map(str, order.seeds))
        settings["rounds"] = " or ".join(map(str, sorted(lengths, reverse=True)))  # training's are told by task
    if trained := made.trained():  # with a scale, figures without training may be asked for alone
        settings |= {"scale": order.scale, "training seeds": ", ".join(map(str, order.training_seeds or ()))}
        settings |= {"device": conditions.device} | _tasks([trial for trial, _ in trained])
    return settings


def _section(made: _Made, name: str, figure: Figure | None, folder: Path) -> Section:
    """A figure on the page with what it shows; the picture, if there is one, is written."""
    title = made.plan.recipes[name].title
    pictures = [] if figure is None else [picture(figure, title, folder, f"figure-{name}")]
    return Section(title, made.findings[name], pictures)


def _in_order(made: _Made, figures: Mapping[str, Section], folder: Path) -> list[Section]:
    """One picture, the verdicts in groups, the other figures.

    The picture is of all verdicts, or where they are about one figure, that figure: marks would only repeat the table.
    """
    claims = claims_sections(made.verdicts)
    if len(by_place(made.verdicts)) > 1:
        shown = picture(verdicts_figure(made.verdicts), "A mark for each claim", folder, "verdicts")
        return [Section("Verdicts", figures=[shown]), *claims, *figures.values()]
    judged = [name for name in figures if made.claims[name]][:1]
    return [*(figures[name] for name in judged), *claims, *(figures[name] for name in figures if name not in judged)]


def _remarks(plan: _Plan, trained: Sequence[Trial]) -> list[str]:
    """What is smaller than in the paper, of what was trained."""
    tasks = dict.fromkeys(trial.task.name for trial in trained if trial.task is not None)
    known = {} if plan.scale is None else plan.scale.remarks
    return list(dict.fromkeys(known[task] for task in tasks if task in known))


def _tasks(trials: Sequence[Trial]) -> dict[str, str]:
    """What was trained, in words, by the task's name."""
    found = {}
    tasks = [(trial.task, trial.rounds) for trial in trials if trial.task is not None]
    for task in dict.fromkeys(replace(task, partition="iid") for task, _ in tasks):
        local = task.local()
        own = [(each.partition, str(rounds)) for each, rounds in tasks if each.name == task.name]
        partitions, rounds = (" or ".join(dict.fromkeys(values)) for values in zip(*own, strict=True))
        found[f"task {task.name}"] = (
            f"{local.dataset}, model {local.model}, {task.samples_per_client or local.samples_per_client} samples a "
            f"client, {task.epochs or local.epochs} epochs, batch {local.batch_size}, rate {local.learning_rate:g}, "
            f"partition {partitions}, rounds {rounds}"
        )
    return found


def _claim_folder(folder: Path, order: Order) -> None:
    """Refuse a folder that holds something else; nothing in it is overwritten then."""
    known = folder / "settings.json"
    if not known.exists():
        return
    found = read_json(known)
    if found.get("paper") != order.paper:
        raise ConfigurationError(
            f"{folder} does not hold a reproduction of {order.paper}: choose another folder or delete it"
        )
    if found.get("scale") not in (None, order.scale):
        raise ConfigurationError(
            f"{folder} holds training experiments of scale {found['scale']}; expected {order.scale}: "
            "choose another folder or delete it"
        )


def _run(
    needed: Mapping[Need, Sequence[Trial]],
    folder: Path,
    progress: Callable[[float], None] | None,
    **options: Any,
) -> dict[Need, list[Done]]:
    total = sum(trial.work for trials in needed.values() for trial in trials)
    before = 0.0
    finished: dict[Need, list[Done]] = {}
    for trains in (False, True):  # short runs first
        keys = [need for need in needed if (need.task is not None) is trains]
        trials = [trial for need in keys for trial in needed[need]]
        if not trials:
            continue
        work, rounds = sum(trial.work for trial in trials), sum(trial.rounds for trial in trials)

        def advance(done: int, before: float = before, work: float = work, rounds: int = rounds) -> None:
            if progress is not None:
                progress((before + work * done / rounds) / total)

        runs = iter(finish(trials, folder=folder / "trials", progress=advance, **options))
        finished |= {key: [next(runs) for _ in needed[key]] for key in keys}
        before += work
    return finished


def _claims_frame(verdicts: Sequence[Verdict]) -> pl.DataFrame:
    columns = {
        "claim": [verdict.claim.name for verdict in verdicts],
        "source": [verdict.claim.source for verdict in verdicts],
        "statement": [verdict.claim.statement for verdict in verdicts],
        "measure": [verdict.claim.measure for verdict in verdicts],
        "effect": [verdict.effect.mean for verdict in verdicts],
        "effect_low": [verdict.effect.low for verdict in verdicts],
        "effect_high": [verdict.effect.high for verdict in verdicts],
        "unit": [verdict.unit for verdict in verdicts],
        "test": [verdict.test for verdict in verdicts],
        "seeds": [verdict.seeds for verdict in verdicts],
        "p_holds": [verdict.p_holds for verdict in verdicts],
        "p_contradicted": [verdict.p_contradicted for verdict in verdicts],
        "asked_by": ["us" if verdict.claim.ours else "paper" for verdict in verdicts],
        "runs": ["training" if verdict.claim.training else "simulation" for verdict in verdicts],
        "changed": [verdict.claim.changed for verdict in verdicts],
        "verdict": [verdict.word for verdict in verdicts],
        "why": [verdict.why for verdict in verdicts],
    }
    return pl.DataFrame(columns)


def _described(trial: Trial) -> dict[str, str]:
    """What tells a run with training from others of its paper, beside policy and seed."""
    settings = ",".join(f"{name}={value}" for name, value in trial.settings.items())
    task = {} if trial.task is None else {"task": trial.task.name, "partition": trial.task.partition}
    return {"scenario": trial.scenario, "settings": settings, **task}
