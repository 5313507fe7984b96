"""Comparisons in several scenarios, a folder for each, and one page above them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import polars as pl

from fedroster.catalogue import REFERENCE
from fedroster.errors import ConfigurationError, InvalidInputError, PausedError
from fedroster.lab.compare.contrasts import TEST_NOTE, TESTED, Contrast, corrected, paired
from fedroster.lab.compare.figures import panel_of
from fedroster.lab.compare.page import details_of, joined, notes_of
from fedroster.lab.compare.result import Comparison, render
from fedroster.lab.compare.run import Progress, held, play
from fedroster.lab.compare.tables import (
    BUDGET,
    DECISION,
    LEAST_SERVED,
    LOWEST_SERVED,
    Measure,
    Settings,
    Values,
    measured,
    summary_of,
    summary_table,
)
from fedroster.lab.pages.pareto import pareto_panels_figure
from fedroster.lab.pages.report import Number, Report, Section, Table, picture, write_page
from fedroster.lab.statistics import mean_interval
from fedroster.lab.trials.run import Where, key
from fedroster.lab.trials.store import machine, read_json, write_json, write_table


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
    if len(set(folders.values())) < len(plans):
        raise ConfigurationError(f"scenarios {list(folders)} would share a folder; expected names that differ")
    known = folder / "settings.json"
    if known.exists() and not is_of_several(folder):
        raise ConfigurationError(
            f"{folder} holds something else than comparisons in several scenarios: choose another folder or delete it"
        )
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
    scenarios = read_json(folder / "settings.json").get("folders")
    if not isinstance(scenarios, dict) or not scenarios:
        raise InvalidInputError(f"{folder / 'settings.json'} names no folders of scenarios")
    # Inside this folder, whatever else the file says of them.
    return _overview(folder, [render(folder / folder_of(scenario), brief=True) for scenario in scenarios])


def _overview(folder: Path, found: Sequence[Comparison]) -> pl.DataFrame:
    file = folder / "settings.json"
    settings = read_json(file)
    for name in ("command", "seeds", "machine"):
        if name not in settings:
            raise InvalidInputError(f"{file} has no {name!r}; expected what `fedroster compare` wrote")
    parts = _tested(found)
    table = _table(parts)
    write_table(table, folder / "overview.csv")
    label = "Up and right is better"
    panels = [panel_of(one.values, one.settings, one.measure, focus=one.focus, title=one.scenario) for one in parts]
    figures = [picture(pareto_panels_figure(panels, title=label), label, folder, "overview")]
    write_page(_page(parts, settings, Section(**_FRONTS, figures=figures)), folder)
    return table


# -------------------------------------------------------------------- numbers


@dataclass(frozen=True, slots=True)
class _Part:
    """A scenario's comparison.

    Attributes:
        values: What was measured.
        settings: What was compared.
        tests: The policy in focus against every other, by that one and the measure; corrected over all scenarios.
    """

    values: Values
    settings: Settings
    tests: dict[tuple[str, Measure], Contrast]

    @property
    def scenario(self) -> str:
        return self.settings.scenario

    @property
    def focus(self) -> str:
        return self.settings.focus

    @property
    def measure(self) -> Measure:
        """What the scenario is about."""
        return self.settings.front_measure

    @property
    def both(self) -> tuple[Measure, Measure]:
        """In what policies are tested: what the scenario is about, and how the least served fare."""
        return self.measure, LEAST_SERVED

    @property
    def rivals(self) -> list[str]:
        """The others that do not know the truth."""
        return [text for text in self.values if text not in (self.focus, *self.settings.omniscient)]

    def best(self, *, as_fair: bool) -> str:
        """The competitor with the best mean, of all or of those that are at least as fair; empty if there is none."""
        least = float(self.values[self.focus][LEAST_SERVED.name].mean()) if as_fair else 0.0
        means = {
            text: float(self.values[text][self.measure.name].mean())
            for text in self.rivals
            if np.isfinite(self.values[text][self.measure.name]).all()
            and self.values[text][LEAST_SERVED.name].mean() >= least
        }
        return (min if self.measure.less else max)(means, key=means.__getitem__, default="")

    def shown(self, verdict: str, *measures: Measure) -> list[str]:
        """Competitors against which the policy in focus has the same verdict in all measures."""
        return [
            rival
            for rival in self.rivals
            if all((rival, m) in self.tests and self.tests[rival, m].verdict == verdict for m in measures)
        ]


def _tested(found: Sequence[Comparison]) -> list[_Part]:
    parts = [_Part(one.values, one.settings, {}) for one in found]
    for part in parts:
        mine = part.values[part.focus]
        for rival, theirs in part.values.items():
            for measure in part.both if rival != part.focus else ():
                test = paired(part.focus, rival, measure, mine[measure.name], theirs[measure.name])
                if test is not None:
                    part.tests[rival, measure] = test
    tests = iter(corrected([test for part in parts for test in part.tests.values()]))
    for part in parts:
        part.tests.update({name: next(tests) for name in part.tests})
    return parts


def _table(parts: Sequence[_Part]) -> pl.DataFrame:
    rows = []
    for part in parts:
        for text, own in part.values.items():
            for measure in part.settings.main_measures:
                whole = own[measure.name]
                shown = mean_interval(whole if np.isfinite(whole).all() else np.full(1, np.nan))
                test = part.tests.get((text, measure))
                row: dict[str, Any] = {"scenario": part.scenario, "policy": text, "measure": measure.name}
                row |= {"mean": shown.mean, "low": shown.low, "high": shown.high}
                tested = {} if test is None else test.row() | {"focus": part.focus}
                rows.append(row | {name: tested.get(name) for name in ("focus", *TESTED)})
    schema: dict[str, Any] = dict.fromkeys(TESTED, pl.Float64) | dict.fromkeys(("focus", "verdict"), pl.String)
    return pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None).with_columns(
        pl.selectors.float().fill_nan(None)
    )


# -------------------------------------------------------------------- text

_FRONTS: dict[str, Any] = {
    "title": "Time and updates against fairness",
    "notes": [
        "Times grow to the left. Bars: 95 % intervals over seeds. Line: the Pareto front of the means. The page of "
        "each scenario has all labels."
    ],
}


def _heads(parts: Sequence[_Part]) -> Table:
    """A row for each scenario: the policy in focus and the best of its competitors."""
    yardsticks = dict.fromkeys(share for part in parts for share in part.settings.share_of_yardstick[:1])
    rows = []
    for part in parts:
        summary = summary_of(part.values, part.settings).row(by_predicate=pl.col("policy") == part.focus, named=True)
        cells = [part.scenario, part.focus, f"{measured(summary, part.measure)}{' s' if part.measure.less else ''}"]
        cells += [measured(summary, share) if share.name in summary else "-" for share in yardsticks]
        for rival in (part.best(as_fair=False), part.best(as_fair=True)):
            test = part.tests.get((rival, part.measure))
            cells += [rival or "none", test.shown() if test is not None else "-"]
        better, worse = (len(part.shown(verdict, part.measure)) for verdict in ("better", "worse"))
        rows.append((*cells, f"{better} / {len(part.rivals) - better - worse} / {worse}"))
    columns = (
        *("scenario", "policy", "a round", *(share.heading for share in yardsticks), "best competitor", "against it"),
        *("best as fair", "against this", "beats / undecided / loses"),
    )
    return Table(columns, rows, text=("scenario", "policy", "best competitor", "best as fair"))


def _verdicts(part: _Part) -> list[str]:
    """What is significant about the policy in focus in a scenario, in sentences."""
    if not any((rival, part.measure) in part.tests for rival in part.rivals):
        return []
    more, fewer, what = ("shorter", "longer", "rounds") if part.measure.less else ("more", "fewer", "updates in time")
    beaten, losses = (part.shown(verdict, part.measure) for verdict in ("better", "worse"))
    said = f"{part.focus} has significantly {more} {what} than {len(beaten)} of its {len(part.rivals)} competitors"
    said += f", and significantly {fewer} than {joined(losses)}." if losses else "."
    for words, found in (
        ("Significantly better for the least served", part.shown("worse", LEAST_SERVED)),
        ("Significantly better in both", part.shown("worse", *part.both)),
    ):
        said += f" {words}: {joined(found) if found else 'no competitor'}."
    if both := part.shown("better", *part.both):
        said += f" {part.focus} is significantly better in both than {joined(both)}."
    return [said]


def _section(part: _Part) -> Section:
    """A scenario: what every policy does there, and the policy in focus against it."""
    # Those that fit on the page beside the differences; the scenario's own page has all.
    hidden = (BUDGET, LOWEST_SERVED, DECISION) if part.settings.has_prices else ()
    summary = summary_of(part.values, part.settings).sort(
        part.measure.name, descending=not part.measure.less, nulls_last=True, maintain_order=True
    )
    plain = summary_table(summary, [measure for measure in part.settings.main_measures if measure not in hidden])
    own = [measure for measure in part.both if any(tested == measure for _, tested in part.tests)]
    rows = []
    for row in plain.rows:
        tests = (part.tests.get((row[0], measure)) for measure in own)
        rows.append((*row, *("-" if test is None else test.shown() for test in tests)))
    changed = "".join(f", {name}={value}" for name, value in part.settings.settings.items())
    return Section(
        part.scenario,
        text=[f"{len(part.values)} policies, {part.settings.rounds:,} rounds{changed}.", *_verdicts(part)],
        table=Table((*plain.columns, *(f"{part.focus}: {m.tested}" for m in own)), rows, text=("policy",)),
        pages={f"All measures, tests and figures of {part.scenario}": folder_of(part.scenario)},
    )


def _left_out(parts: Sequence[_Part]) -> list[Section]:
    """Which policies are not compared where, and why; a row for each reason."""
    where: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        for name, reason in part.settings.left_out.items():
            where.setdefault((name, reason), []).append(part.scenario)
    columns = ("policy", "where", "why")
    rows = [(name, joined(found), reason) for (name, reason), found in where.items()]
    return [Section("Policies that are not compared", table=Table(columns, rows, columns))] if rows else []


def _page(parts: Sequence[_Part], settings: Mapping[str, Any], fronts: Section) -> Report:
    seeds, task = settings["seeds"], parts[0].settings.task
    runs = sum(len(part.values) for part in parts) * len(seeds)
    what = "rounds without training" if task is None else f"federated training, task {task['name']}"
    heads = (
        f"The table compares {joined(list(dict.fromkeys(part.focus for part in parts)))} with the best competitor in "
        "each scenario, and with the best competitor that is at least as fair. It compares the time of a round or, "
        "where clients have prices and updates a deadline, the updates in time. The last column counts the competitors "
        "that it beats, those for which these seeds do not decide, and those that it loses to. Policies that know the "
        "truth are no competitors."
    )
    note = TEST_NOTE.replace("the whole table", "all of these tests on this page")
    reading = (
        "The last columns of a scenario's table compare the policy in focus with that of the row, with the same seed. "
        f"{note} All numbers: `overview.csv`, which the command below writes."
    )
    notes = dict.fromkeys(note for part in parts for note in notes_of(part.settings))
    counted = f"{len(parts)} scenario{'s' if len(parts) > 1 else ''}"
    first = {"scenarios": ", ".join(part.scenario for part in parts), "seeds": ", ".join(map(str, seeds))}
    headline, numbers = _headline(parts)
    return Report(
        f"Policies compared in {counted}",
        [f"{counted}, {len(seeds)} seeds, {runs:,} runs: {what}."],
        [
            Section("Against the best competitors", text=[heads], table=_heads(parts)),
            fronts,
            *map(_section, parts),
            Section("How to read the tables", text=[reading, *notes]),
            *_left_out(parts),
        ],
        settings["command"],
        details_of(first, task, settings["machine"]),
        str(settings["machine"].get("fedroster", "")),
        headline,
        numbers,
    )


def _headline(parts: Sequence[_Part]) -> tuple[str, list[Number]]:
    """In how many scenarios the policy in focus is shown to be better than others, in a sentence and three numbers."""
    numbers = []
    for what, rivals in (
        (REFERENCE, [next((t for t in part.rivals if t.partition(":")[0] == REFERENCE), "") for part in parts]),
        ("the best competitor", [part.best(as_fair=False) for part in parts]),
        ("the best as fair", [part.best(as_fair=True) for part in parts]),
    ):
        found = (part.tests.get((rival, part.measure)) for part, rival in zip(parts, rivals, strict=True))
        if words := [test.verdict for test in found if test is not None]:
            better, worse = words.count("better"), words.count("worse")
            note = f"{len(words) - better - worse} undecided, {worse} worse; faster, or more updates in time"
            tone = "holds" if better > worse else "fails" if worse > better else ""
            numbers.append(Number(f"{better} of {len(words)}", f"scenarios: better than {what}", note, tone))
    if not numbers:
        return "", []
    focus = joined(list(dict.fromkeys(part.focus.partition(":")[0] for part in parts)))
    told = [f"{one.label.partition(': ')[2]} in {one.value} scenarios" for one in numbers[:1] + numbers[-1:]]
    return f"{focus}: {', '.join(dict.fromkeys(told))}", numbers
