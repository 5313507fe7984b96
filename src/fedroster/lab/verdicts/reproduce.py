"""Makes a paper's figures: runs, data, pictures, verdicts and one page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Unpack

import polars as pl

from fedroster.catalogue import make_policy, make_scenario, parse_settings
from fedroster.errors import ConfigurationError, UnknownNameError
from fedroster.lab.pages.charts import Figure, data_of, narrow
from fedroster.lab.pages.report import BAND_NOTE, Report, Section, picture, write_page
from fedroster.lab.trials.run import Done, Where, finish, provenance
from fedroster.lab.trials.store import machine, read_json, write_json, write_table
from fedroster.lab.trials.trial import ALONE, Trial
from fedroster.lab.verdicts.claims_page import claims_sections, headline, numbers_of, numbers_table
from fedroster.lab.verdicts.paper import FigureRecipe, Need, Numbers, Paper, find_paper
from fedroster.lab.verdicts.registry import SIZE, Registered, registered
from fedroster.lab.verdicts.verdicts import Claim, Verdict, judge
from fedroster.parts import check_integer, refuse_links


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
        settings: Parameters of the scenarios that are changed, as text.
        policies: Policies with parameters that are changed, such as "rbcs-f:alpha=0.2": wherever it plays.
    """

    paper: str
    seeds: Sequence[int]
    figures: Sequence[str] = ()
    rounds: int | None = None
    scale: str | None = None
    training_seeds: Sequence[int] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    policies: Sequence[str] = ()

    def changed(self, need: Need) -> Need:
        """The runs that a figure needs, with other parameters where these are asked for, which are checked."""
        settings, policy = dict(need.settings) | dict(self.settings), need.policy
        make_scenario(need.scenario, settings)
        for text in self.policies:
            name, _, more = text.partition(":")
            own, _, parameters = policy.partition(":")
            if own == name:
                given = [parse_settings(filter(None, part.split(","))) for part in (parameters, more)]
                policy = f"{name}:" + ",".join(f"{key}={value}" for key, value in (given[0] | given[1]).items())
                make_policy(policy)
        return replace(need, policy=policy, settings=tuple(settings.items()))


def reproduce(
    order: Order,
    folder: Path,
    *,
    command: str,
    pages: bool = True,
    tables: bool = False,
    width: float | None = None,
    progress: Callable[[float], None] | None = None,
    **where: Unpack[Where],
) -> list[Verdict]:
    """Make figures of a paper, and judge its claims.

    Finished runs, and checkpoints of others with training, are kept in ``folder/trials``.

    Args:
        order: What is wanted.
        folder: Where to write.
        command: The command that makes it again, for the page.
        pages: Whether to write pictures, and the page as HTML and as Markdown.
        tables: Whether to write the data of every figure.
        width: Of pictures for a paper, as PDF, in points; None for none.
        progress: Called with the share of all rounds that is done.
        **where: As :func:`~fedroster.lab.trials.run.run_trials` takes it.

    Raises:
        UnknownNameError: If there is no such paper, scale or figure.
        ConfigurationError: If there are too few seeds or rounds for intervals and slopes.
        PausedError: If the time was up first; the same call continues.
    """
    paper, recipes, order = _wanted(order)
    _check_folder(folder, order)
    needs = dict.fromkeys(need for recipe in recipes.values() for need in recipe.needs.values())
    needed = {
        need: need.trials(
            seeds=order.seeds if need.task is None else order.training_seeds or (),
            rounds=order.rounds or need.rounds or paper.rounds,
        )
        for need in sorted(needs, key=lambda need: need.task is not None)  # those without training are short
    }
    trials = [trial for own in needed.values() for trial in own]
    total = sum(trial.rounds for trial in trials)
    entry = registered(order.paper)
    conditions = replace(where.get("conditions", ALONE), registry="" if entry is None else entry.digest)
    where["conditions"] = conditions

    def advance(rounds: int) -> None:
        if progress is not None:
            progress(rounds / total)

    played = finish(trials, folder=folder / "trials", progress=advance, **where)
    left = iter(played)
    finished = {need: [next(left) for _ in own] for need, own in needed.items()}
    claims = list[Claim]()
    figures = dict[str, Figure]()
    numbers = dict[str, Numbers]()
    for name, recipe in recipes.items():
        runs = {label: [done.run for done in finished[need]] for label, need in recipe.needs.items()}
        claims += [replace(claim, training=recipe.trains) for claim in recipe.claims(runs)]
        figures[name], numbers[name] = recipe.draw(runs), recipe.numbers(runs)
    verdicts = judge(claims, level=entry.level, family=entry.family) if entry else judge(claims)
    kept = _registry(order, paper, entry, recipes, finished, verdicts)
    settings = _settings(order, trials, conditions.device) | machine() | {"code": provenance(played), **kept}
    write_table(_claims_table(verdicts), folder / "claims.csv")
    write_json(folder / "settings.json", {"command": command, **settings})
    for name, figure in figures.items():
        if tables:
            write_table(data_of(figure), folder / f"figure-{name}.csv")
        if width is not None:
            narrow(figure, width).save(folder / f"figure-{name}.pdf")
    if pages:
        registry = "Registered before the runs: {registered}. (Registry {registry}.)".format(**kept)
        notes = [registry, BAND_NOTE, *filter(None, [paper.citation])]
        sections = claims_sections(verdicts)
        for name, recipe in recipes.items():
            shown = [picture(figures[name], recipe.title, folder, f"figure-{name}")]
            sections.append(Section(recipe.title, recipe.notes, shown, numbers_table(numbers[name])))
        sections.append(Section("Notes", notes=notes))
        found, *lead = headline(verdicts)
        write_page(Report(paper.title, lead, sections, command, settings, found, numbers_of(verdicts)), folder)
    return verdicts


def _registry(
    order: Order,
    paper: Paper,
    entry: Registered | None,
    recipes: Mapping[str, FigureRecipe],
    finished: Mapping[Need, Sequence[Done]],
    verdicts: Sequence[Verdict],
) -> dict[str, str]:
    """Digest of the paper's entry, and whether all that is judged was in it before the runs, in words."""
    if entry is None:
        return {"registry": "none", "registered": "no: nothing is registered of this paper"}
    seeds, carried = {}, []
    for name, recipe in recipes.items():
        kind = name if name in entry.seeds else "training" if recipe.trains else "simulation"
        runs = [done for need in recipe.needs.values() for done in finished[need]]
        seeds[kind] = list(dict.fromkeys(done.trial.seed for done in runs))
        carried += [done.registry for done in runs]
    changed = {
        "parameters were changed": order.settings or order.policies,
        "rounds were changed": any(order.rounds not in (None, need.rounds or paper.rounds) for need in finished),
        f"the size is {order.scale}": order.scale != SIZE and any(recipe.trains for recipe in recipes.values()),
    }
    faults = [fault for fault, is_so in changed.items() if is_so]
    faults += entry.faults([one.claim for one in verdicts], seeds, carried)
    told = f"no: {'; '.join(faults[:3])}{f'; and {len(faults) - 3} more' * (len(faults) > 3)}"
    looks = f"{entry.looks} look{'s' * (entry.looks > 1)}"
    about = f"yes, on {entry.since}: claims, margins, {entry.family} tested claims as one family, seeds, {looks}"
    return {"registry": entry.digest, "registered": told if faults else about}


def _wanted(order: Order) -> tuple[Paper, dict[str, FigureRecipe], Order]:
    """Check an order; its paper, its recipes by name, and itself with the seeds of its scale."""
    paper = find_paper(order.paper)
    known = dict(paper.figures)
    if order.scale is not None:
        if order.scale not in paper.scales:
            raise UnknownNameError.of("scale", order.scale, paper.scales)
        scale = paper.scales[order.scale]
        known |= scale.figures
        if order.training_seeds is None:
            order = replace(order, training_seeds=scale.seeds)
    for name in order.figures:
        if name not in known:
            if order.scale is None and any(name in size.figures for size in paper.scales.values()):
                raise ConfigurationError(f"figure {name} needs training; expected a scale: smoke, cpu or full")
            raise UnknownNameError.of(f"figure of {order.paper}", name, known)
    for what, seeds in {"seeds": order.seeds, "training seeds": order.training_seeds}.items():
        if seeds is not None and not 2 <= len(set(seeds)) == len(seeds):
            raise ConfigurationError(f"{what} are {list(seeds)}; expected at least two different ones, each once")
    if order.rounds is not None:
        check_integer("rounds", order.rounds, least=10)
    recipes = {
        name: recipe
        for name, recipe in known.items()
        if (name in order.figures if order.figures else not recipe.on_request)
    }
    played = {need.policy.partition(":")[0] for recipe in recipes.values() for need in recipe.needs.values()}
    for text in order.policies:
        if text.partition(":")[0] not in played:
            raise UnknownNameError.of(f"policy of {order.paper}", text.partition(":")[0], played)
    for name, recipe in recipes.items():
        recipes[name] = replace(recipe, needs={label: order.changed(need) for label, need in recipe.needs.items()})
    return paper, recipes, order


def _check_folder(folder: Path, order: Order) -> None:
    """Refuse a folder that holds something else; nothing in it is overwritten then."""
    refuse_links(folder)
    known = folder / "settings.json"
    found = read_json(known) if known.exists() else {"paper": order.paper}
    if found.get("paper") != order.paper:
        fault = f"does not hold a reproduction of {order.paper}"
    elif found.get("scale") not in (None, order.scale):
        fault = f"holds training experiments of scale {found['scale']}; expected {order.scale}"
    else:
        return
    raise ConfigurationError(f"{folder} {fault}: choose another folder or delete it")


def _settings(order: Order, trials: Sequence[Trial], device: str) -> dict[str, Any]:
    """What the numbers depend on, but for the machine."""
    changes = [*(f"{name}={value}" for name, value in order.settings.items()), *order.policies]
    settings: dict[str, Any] = {
        "paper": order.paper,
        "scenarios": ", ".join(dict.fromkeys(trial.scenario for trial in trials)),
        "policies": ", ".join(dict.fromkeys(trial.policy for trial in trials)),
    }
    if changes:
        settings["changed"] = ", ".join(changes)
    if lengths := {trial.rounds for trial in trials if trial.task is None}:
        settings["seeds"] = ", ".join(map(str, order.seeds))
        settings["rounds"] = " or ".join(map(str, sorted(lengths, reverse=True)))  # training's are told by task
    if tasks := _tasks(trials):  # with a scale, figures without training may be asked for alone
        settings |= {"scale": order.scale, "training seeds": ", ".join(map(str, order.training_seeds or ()))}
        settings |= {"device": device} | {f"task {name}": words for name, words in tasks.items()}
    return settings


def _tasks(trials: Iterable[Trial]) -> dict[str, str]:
    """What was trained, in words, by the task's name."""
    found = {}
    tasks = [(trial.task, trial.rounds) for trial in trials if trial.task is not None]
    for task in dict.fromkeys(replace(task, partition="iid") for task, _ in tasks):
        local = task.local()
        own = [(each.partition, str(rounds)) for each, rounds in tasks if each.name == task.name]
        partitions, rounds = (" or ".join(dict.fromkeys(values)) for values in zip(*own, strict=True))
        found[task.name] = (
            f"{local.dataset}, model {local.model}, {task.samples_per_client or local.samples_per_client} samples a "
            f"client, {task.epochs or local.epochs} epochs, batch {local.batch_size}, rate {local.learning_rate:g}, "
            f"partition {partitions}, rounds {rounds}"
        )
    return found


def _claims_table(verdicts: Sequence[Verdict]) -> pl.DataFrame:
    columns = {
        "claim": "claim.name",
        "source": "claim.source",
        "statement": "claim.statement",
        "measure": "claim.measure",
        "effect": "effect.mean",
        "effect_low": "effect.low",
        "effect_high": "effect.high",
        **{name: name for name in ("unit", "test", "seeds", "p_holds", "p_small", "p_contradicted")},
        "asked_by": "claim.asked_by",
        "runs": "claim.runs",
        "changed": "claim.changed",
        "verdict": "word",
        "why": "why",
    }
    return pl.DataFrame({name: [attrgetter(place)(one) for one in verdicts] for name, place in columns.items()})
