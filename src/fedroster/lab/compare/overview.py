"""Comparisons in several scenarios, a folder for each, and one page above them: one family of tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

import msgspec
import numpy as np
import polars as pl

from fedroster.errors import ConfigurationError, InvalidInputError, PausedError
from fedroster.lab.compare.contrasts import TEST_NOTE, TESTED, Contrast
from fedroster.lab.compare.figures import panel_of
from fedroster.lab.compare.page import details_of, joined
from fedroster.lab.compare.result import Comparison, render
from fedroster.lab.compare.run import Progress, held, play
from fedroster.lab.compare.tables import LEAST_SERVED, Measure, Settings
from fedroster.lab.pages.pareto import pareto_panels_figure
from fedroster.lab.pages.report import Report, Section, Table, picture, write_page
from fedroster.lab.statistics import mean_interval
from fedroster.lab.trials.run import Where, key
from fedroster.lab.trials.store import machine, read_json, write_json, write_table
from fedroster.parts import refuse_links


def folder_of(scenario: str) -> str:
    """Name of a scenario's folder."""
    return re.sub(r"[^\w@-]+", "-", scenario)


def compare_all(
    plans: Sequence[Settings], folder: Path, *, progress: Progress | None = None, **where: Unpack[Where]
) -> tuple[pl.DataFrame, list[Comparison]]:
    """Compare policies in several scenarios, each in a folder of its own, and write one page above them.

    Returns:
        What :func:`render_all` returns, and what was found in each scenario.

    Raises:
        ConfigurationError: If a parameter is out of its range, or a folder belongs to another comparison.
        InUseError: If another process writes there.
        PausedError: If the time was up first; the same call continues.
    """
    folders = {plan.scenario: folder_of(plan.scenario) for plan in plans}
    if len({each.casefold() for each in folders.values()}) < len(plans):
        raise ConfigurationError(f"scenarios {list(folders)} would share a folder; expected names that differ")
    known = folder / "settings.json"
    if known.exists() and not is_of_several(folder):
        raise ConfigurationError(
            f"{folder} holds something else than comparisons in several scenarios: choose another folder or delete it"
        )
    plans = [replace(plan, read_together=len(plans)) for plan in plans]
    for plan in plans:
        plan.check()
    files = [
        folder / folders[plan.scenario] / "trials" / f"{key(trial)}.npz" for plan in plans for trial in plan.trials()
    ]
    found: list[Comparison] = []
    before = 0

    def advance(done: float, _: int, words: str) -> None:
        if progress is not None:
            progress(before + done, len(files), f"{plan.scenario}, {words}" if words else plan.scenario)

    with held(folder):
        for plan in plans:
            own = folder / folders[plan.scenario]
            try:
                found.append(play(plan, own, progress=advance, **where))
            except PausedError as error:
                raise PausedError.of(sum(file.exists() for file in files), len(files)) from error
            found[-1].report(own, brief=True)
            before += len(plan.trials())
        codes = dict.fromkeys(str(one.settings.machine["code"]) for one in found)
        description = {
            "command": plans[0].command,
            "folders": folders,
            "seeds": list(plans[0].seeds),
            "machine": machine() | {"code": "; ".join(codes)},
        }
        write_json(known, description)
        return _overview(folder, found), found


def is_of_several(folder: Path) -> bool:
    """Whether :func:`compare_all` wrote a folder."""
    return (folder / "settings.json").exists() and "folders" in read_json(folder / "settings.json")


def render_all(folder: Path) -> pl.DataFrame:
    """Make all pages again from the tables of the scenarios.

    Returns:
        A row for each scenario, policy and main measure, and how the policy in focus does against it.

    Raises:
        InvalidInputError: If something is missing or damaged.
    """
    refuse_links(folder)
    if not (scenarios := _read(folder)["folders"]):
        raise InvalidInputError(f"{folder / 'settings.json'} names no folders of scenarios")
    # Inside this folder, whatever else the file says of them.
    return _overview(folder, [render(folder / folder_of(scenario), brief=True) for scenario in scenarios])


class _Several(TypedDict):
    """What is kept of a comparison in several scenarios."""

    command: str
    folders: dict[str, str]
    seeds: list[int]
    machine: dict[str, Any]


def _read(folder: Path) -> _Several:
    file = folder / "settings.json"
    try:
        return msgspec.convert(read_json(file), _Several)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"{file}: {error}; expected what `fedroster compare` wrote") from error


def _overview(folder: Path, found: Sequence[Comparison]) -> pl.DataFrame:
    settings = _read(folder)
    table = pl.DataFrame(
        [row for one in found for row in _rows(one)],
        schema_overrides=dict.fromkeys(TESTED, pl.Float64) | dict.fromkeys(("focus", "verdict"), pl.String),
        infer_schema_length=None,
    ).with_columns(pl.selectors.float().fill_nan(None))
    write_table(table, folder / "overview.csv")
    label = "Up and right is better"
    panels = [
        panel_of(one.values, own, own.front_measure, focus=own.focus, title=own.scenario)
        for one in found
        for own in [one.settings]
    ]
    figure = picture(pareto_panels_figure(panels, title=label), label, folder, "overview")
    fronts = Section(
        "Time and updates against fairness",
        figures=[figure],
        notes=[
            "Times grow to the left. Bars: 95 % intervals over seeds. Line: the Pareto front of the means. The page of "
            "each scenario has all labels."
        ],
    )
    write_page(_page(found, settings, fronts), folder)
    return table


def _against(one: Comparison, rival: str, measure: Measure | None = None) -> Contrast | None:
    """The policy in focus against another, in what the scenario is about if no measure is named."""
    asked = rival, measure or one.settings.front_measure
    found = (test for test in one.tests[one.settings.focus] if (test.policy, test.measure) == asked)
    return next((test.from_the_other_side() for test in found), None)


def _rows(one: Comparison) -> list[dict[str, Any]]:
    """A row for each policy and main measure: its mean, and the policy in focus against it."""
    rows = []
    for text, own in one.values.items():
        for measure in one.settings.main_measures:
            whole = own[measure.name]
            shown = mean_interval(whole if np.isfinite(whole).all() else np.full(1, np.nan))
            test = None if text == one.settings.focus else _against(one, text, measure)
            row: dict[str, Any] = {"scenario": one.settings.scenario, "policy": text, "measure": measure.name}
            row |= {"mean": shown.mean, "low": shown.low, "high": shown.high}
            tested = {} if test is None else test.row() | {"focus": one.settings.focus}
            rows.append(row | {name: tested.get(name) for name in ("focus", *TESTED)})
    return rows


def _rivals(one: Comparison) -> list[str]:
    """The others that do not know the truth."""
    return [text for text in one.values if text not in (one.settings.focus, *one.settings.omniscient)]


def _best(one: Comparison, *, as_fair: bool) -> str:
    """The competitor with the best mean, of all or of those that are at least as fair; empty if there is none."""
    measure = one.settings.front_measure
    least = float(one.values[one.settings.focus][LEAST_SERVED.name].mean()) if as_fair else 0.0
    means = {
        text: float(one.values[text][measure.name].mean())
        for text in _rivals(one)
        if np.isfinite(one.values[text][measure.name]).all() and one.values[text][LEAST_SERVED.name].mean() >= least
    }
    return (min if measure.less else max)(means, key=means.__getitem__, default="")


def _heads(found: Sequence[Comparison]) -> Iterator[tuple[str, ...]]:
    """A row for each scenario: the policy in focus, the best of its competitors, and how many it beats."""
    for one in found:
        measure = one.settings.front_measure
        mean = measure.scale * one.values[one.settings.focus][measure.name].mean()
        cells = [one.settings.scenario, one.settings.focus, f"{mean:.2f}{' s' * measure.less}"]
        for rival in (_best(one, as_fair=False), _best(one, as_fair=True)):
            test = _against(one, rival) if rival else None
            cells += [rival or "none", test.shown() if test is not None else "-"]
        tests = filter(None, map(partial(_against, one), _rivals(one)))
        words = [test.verdict.partition(",")[0] for test in tests]
        better, worse = words.count("better"), words.count("worse")
        yield *cells, f"{better} / {len(words) - better - worse} / {worse}"


def _page(found: Sequence[Comparison], settings: _Several, fronts: Section) -> Report:
    seeds, task = settings["seeds"], found[0].settings.task
    what = "rounds without training" if task is None else f"federated training, task {task['name']}"
    focus = joined(list(dict.fromkeys(one.settings.focus for one in found)))
    rows = list(_heads(found))
    columns = ("scenario", "policy", "a round", "best competitor", "against it", "best as fair", "against this")
    heads = Table(
        (*columns, "beats / neither / loses"), rows, ("scenario", "policy", "best competitor", "best as fair")
    )
    about = (
        f"{focus} beside the best competitor in each scenario, and beside the best that is at least as fair: the time "
        "of a round or, where clients have prices and updates a deadline, the updates in time. Policies that know the "
        f"truth are no competitors. {TEST_NOTE} The tests of all scenarios are one family."
    )
    counted = f"{len(found)} scenario{'s' * (len(found) > 1)}"
    folders = {
        f"{one.settings.scenario}, {len(one.values)} policies": folder_of(one.settings.scenario) for one in found
    }
    beaten, neither, worse = (sum(int(row[-1].split(" / ")[place]) for row in rows) for place in range(3))
    headline = f"{focus}: better than {beaten} of {beaten + neither + worse} competitors, worse than {worse}"
    first = {"scenarios": ", ".join(one.settings.scenario for one in found), "seeds": ", ".join(map(str, seeds))}
    return Report(
        f"Policies compared in {counted}",
        [f"{counted}, {len(seeds)} seeds, {sum(len(one.values) for one in found) * len(seeds):,} runs: {what}."],
        [
            Section("Against the best competitors", text=[about], table=heads),
            fronts,
            Section("All measures, tests and figures", pages=folders),
        ],
        settings["command"],
        details_of(first, task, settings["machine"]),
        str(settings["machine"].get("fedroster", "")),
        headline if beaten + neither + worse else "",
    )
