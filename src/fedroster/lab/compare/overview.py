"""Comparisons in several scenarios, a folder for each, and one page above them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import polars as pl

from fedroster.catalogue import REFERENCE
from fedroster.errors import ConfigurationError, InvalidInputError, PausedError
from fedroster.lab.compare.contrasts import TEST_NOTE, Contrast, corrected, paired
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
    read_values,
    summary_of,
    summary_table,
)
from fedroster.lab.pages.pareto import pareto_panels_figure
from fedroster.lab.pages.report import Number, Picture, Report, Section, Table, picture, write_page
from fedroster.lab.statistics import mean_interval
from fedroster.lab.trials.run import Where, key
from fedroster.lab.trials.store import machine, read_json, write_json, write_table
from fedroster.lab.trials.trial import Trial


@dataclass(frozen=True, slots=True)
class _Part:
    """A scenario's comparison as far as the page above needs it."""

    folder: str
    values: Values
    settings: Settings
    scenario: str
    focus: str
    measure: Measure

    @classmethod
    def read(cls, folder: Path, name: str) -> Self:
        values, settings = read_values(folder / name)
        return cls(name, values, settings, settings.scenario, settings.focus, settings.front_measure)

    @property
    def rivals(self) -> list[str]:
        """The others that do not know the truth."""
        return [text for text in self.values if text not in (self.focus, *self.settings.omniscient)]


def folder_of(scenario: str) -> str:
    """Name of a scenario's folder."""
    return scenario.replace("/", "-")


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
    if known.exists() and "folders" not in read_json(known):
        raise ConfigurationError(
            f"{folder} holds something else than comparisons in several scenarios: choose another folder or delete it"
        )
    for plan in plans:
        plan.check()
    trials = {plan.scenario: plan.trials() for plan in plans}
    found: list[Comparison] = []
    before, total = 0, sum(map(len, trials.values()))

    def advance(done: float, _: int, words: str) -> None:
        if progress is not None:
            progress(before + done, total, f"{plan.scenario}, {words}" if words else plan.scenario)

    with held(folder):
        for plan in plans:
            own = folder / folders[plan.scenario]
            try:
                found.append(play(plan, own, progress=advance, **where))
            except PausedError as error:
                done = sum(_finished(some, folder / folders[name] / "trials") for name, some in trials.items())
                raise PausedError.of(done, total) from error
            found[-1].report(own, brief=True)
            before += len(trials[plan.scenario])
        codes = dict.fromkeys(str(one.settings.machine["code"]) for one in found)
        description = {
            "command": plans[0].command,
            "folders": folders,
            "seeds": list(plans[0].seeds),
            "machine": machine() | {"code": "; ".join(codes)},
        }
        write_json(known, description)
        return _overview(folder), found


def _finished(trials: Sequence[Trial], folder: Path) -> int:
    return sum((folder / f"{key(trial)}.npz").exists() for trial in trials)


def is_of_several(folder: Path) -> bool:
    """Whether :func:`compare_all` wrote a folder."""
    return (folder / "settings.json").exists() and "folders" in read_json(folder / "settings.json")


def render_all(folder: Path) -> pl.DataFrame:
    """Make all pages again: that of each scenario whose tables exist, and the one above them.

    Returns:
        A row for each scenario, policy and main measure, and how the policy in focus does against it.

    Raises:
        InvalidInputError: If something else is missing or damaged.
    """
    for name in _folders(folder):
        if (folder / name / "rounds.csv").exists() or (folder / name / "participation.parquet").exists():
            render(folder / name, brief=True)
    return _overview(folder)


def _folders(folder: Path) -> list[str]:
    folders = read_json(folder / "settings.json").get("folders")
    if not isinstance(folders, dict) or not folders:
        raise InvalidInputError(f"{folder / 'settings.json'} names no folders of scenarios")
    return list(folders.values())


def _overview(folder: Path) -> pl.DataFrame:
    file = folder / "settings.json"
    settings = read_json(file)
    for name in ("command", "seeds", "machine"):
        if name not in settings:
            raise InvalidInputError(f"{file} has no {name!r}; expected what `fedroster compare` wrote")
    parts = [_Part.read(folder, name) for name in _folders(folder)]
    tests = _tests(parts)
    table = _table(parts, tests)
    write_table(table, folder / "overview.csv")
    label = "Up and right is better"
    panels = [panel_of(one.values, one.settings, one.measure, focus=one.focus, title=one.scenario) for one in parts]
    figure = pareto_panels_figure(panels, title=label)
    write_page(_page(parts, tests, settings, picture(figure, label, folder, "overview")), folder)
    return table


# -------------------------------------------------------------------- numbers


_Tests = Mapping[tuple[str, str, Measure], Contrast]  # by scenario, rival and measure


def _compared(part: _Part) -> tuple[Measure, Measure]:
    """In what the policy in focus stands against every other: what the scenario is about, and the least served."""
    return part.measure, LEAST_SERVED


def _tests(parts: Sequence[_Part]) -> _Tests:
    """The policy in focus against every other in every scenario, corrected together."""
    found = {}
    for part in parts:
        mine = part.values[part.focus]
        for rival, theirs in part.values.items():
            for measure in _compared(part) if rival != part.focus else ():
                test = paired(part.focus, rival, measure, mine[measure.name], theirs[measure.name])
                if test is not None:
                    found[part.scenario, rival, measure] = test
    return dict(zip(found, corrected(list(found.values())), strict=True))


_TESTED = ("difference", "difference_low", "difference_high", "p", "p_holm")


def _table(parts: Sequence[_Part], tests: _Tests) -> pl.DataFrame:
    rows = []
    for part in parts:
        for text, own in part.values.items():
            for measure in part.settings.main_measures:
                whole = own[measure.name]
                shown = mean_interval(whole if np.isfinite(whole).all() else np.full(1, np.nan))
                test = tests.get((part.scenario, text, measure))
                against = {} if test is None else test.row()
                row: dict[str, Any] = {
                    "scenario": part.scenario,
                    "policy": text,
                    "measure": measure.name,
                    "mean": shown.mean,
                    "low": shown.low,
                    "high": shown.high,
                    "focus": None if test is None else part.focus,
                }
                rows.append(row | {name: against.get(name) for name in (*_TESTED, "verdict")})
    schema: dict[str, Any] = {**dict.fromkeys(_TESTED, pl.Float64), "focus": pl.String, "verdict": pl.String}
    return pl.DataFrame(rows, schema_overrides=schema, infer_schema_length=None).with_columns(
        pl.selectors.float().fill_nan(None)
    )


# -------------------------------------------------------------------- text


def _best(part: _Part, *, as_fair: bool) -> str:
    """The competitor with the best mean, of all or of those that are at least as fair; empty if there is none."""
    least = float(part.values[part.focus][LEAST_SERVED.name].mean()) if as_fair else 0.0
    means = {
        text: float(part.values[text][part.measure.name].mean())
        for text in part.rivals
        if np.isfinite(part.values[text][part.measure.name]).all()
        and part.values[text][LEAST_SERVED.name].mean() >= least
    }
    return min(means, key=lambda text: means[text] if part.measure.less else -means[text]) if means else ""


def _heads(parts: Sequence[_Part], tests: _Tests) -> Table:
    """A row for each scenario: the policy in focus and the best of its competitors."""
    yardsticks = dict.fromkeys(share for part in parts for share in part.settings.share_of_yardstick[:1])
    rows = []
    for part in parts:
        summary = summary_of(part.values, part.settings).row(by_predicate=pl.col("policy") == part.focus, named=True)
        cells = [
            part.scenario,
            part.focus,
            f"{measured(summary, part.measure)}{' s' if part.measure.less else ''}",
            *(measured(summary, share) if share.name in summary else "-" for share in yardsticks),
        ]
        for as_fair in (False, True):
            rival = _best(part, as_fair=as_fair)
            test = tests.get((part.scenario, rival, part.measure))
            cells += [rival or "none", test.shown() if test is not None else "-"]
        better, worse = (len(_shown(part, tests, verdict, part.measure)) for verdict in ("better", "worse"))
        rows.append((*cells, f"{better} / {len(part.rivals) - better - worse} / {worse}"))
    columns = (
        *("scenario", "policy", "a round", *(share.heading for share in yardsticks), "best competitor", "against it"),
        *("best as fair", "against this", "beats / undecided / loses"),
    )
    return Table(columns, rows, text=("scenario", "policy", "best competitor", "best as fair"))


def _shown(part: _Part, tests: _Tests, verdict: str, *measures: Measure) -> list[str]:
    """Competitors against which the policy in focus has the same verdict in all measures."""
    found = []
    for rival in part.rivals:
        words = [test.verdict for m in measures if (test := tests.get((part.scenario, rival, m))) is not None]
        if words == [verdict] * len(measures):
            found.append(rival)
    return found


def _verdicts(part: _Part, tests: _Tests) -> list[str]:
    """What is significant about the policy in focus in a scenario, in sentences."""
    if not any((part.scenario, rival, part.measure) in tests for rival in part.rivals):
        return []
    more, fewer, what = ("shorter", "longer", "rounds") if part.measure.less else ("more", "fewer", "updates in time")
    beaten, losses = (_shown(part, tests, verdict, part.measure) for verdict in ("better", "worse"))
    sentences = [
        f"{part.focus} has significantly {more} {what} than {len(beaten)} of its {len(part.rivals)} competitors"
        + (f", and significantly {fewer} than {joined(losses)}." if losses else ".")
    ]
    for words, found in (
        ("Significantly better for the least served", _shown(part, tests, "worse", LEAST_SERVED)),
        ("Significantly better in both", _shown(part, tests, "worse", *_compared(part))),
    ):
        sentences.append(f"{words}: {joined(found) if found else 'no competitor'}.")
    if both := _shown(part, tests, "better", *_compared(part)):
        sentences.append(f"{part.focus} is significantly better in both than {joined(both)}.")
    return [" ".join(sentences)]


def _section(part: _Part, tests: _Tests) -> Section:
    """A scenario: what every policy does there, and the policy in focus against it."""
    # Those that fit on the page beside the differences; the scenario's own page has all.
    hidden = (BUDGET, LOWEST_SERVED, DECISION) if part.settings.has_prices else ()
    summary = summary_of(part.values, part.settings).sort(
        part.measure.name, descending=not part.measure.less, nulls_last=True, maintain_order=True
    )
    plain = summary_table(summary, [measure for measure in part.settings.main_measures if measure not in hidden])
    own = [measure for measure in _compared(part) if any(key[::2] == (part.scenario, measure) for key in tests)]
    rows = []
    for row in plain.rows:
        found = [tests.get((part.scenario, row[0], measure)) for measure in own]
        rows.append((*row, *("-" if test is None else test.shown() for test in found)))
    changed = "".join(f", {name}={value}" for name, value in part.settings.settings.items())
    return Section(
        part.scenario,
        text=[f"{len(part.values)} policies, {part.settings.rounds:,} rounds{changed}.", *_verdicts(part, tests)],
        table=Table((*plain.columns, *(f"{part.focus}: {m.tested}" for m in own)), rows, text=("policy",)),
        pages={f"All measures, tests and figures of {part.scenario}": part.folder},
    )


def _left_out(parts: Sequence[_Part]) -> Table:
    """Which policies are not compared where, and why; a row for each reason."""
    where: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        for name, reason in part.settings.left_out.items():
            where.setdefault((name, reason), []).append(part.scenario)
    rows = [(name, joined(found), reason) for (name, reason), found in where.items()]
    return Table(("policy", "where", "why"), rows, text=("policy", "where", "why"))


def _page(parts: Sequence[_Part], tests: _Tests, settings: Mapping[str, Any], shown: Picture) -> Report:
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
    sections = [
        Section("Against the best competitors", text=[heads], table=_heads(parts, tests)),
        Section(
            "Time and updates against fairness",
            figures=[shown],
            notes=[
                "Times grow to the left. Bars: 95 % intervals over seeds. Line: the Pareto front of the means. The "
                "page of each scenario has all labels."
            ],
        ),
        *(_section(part, tests) for part in parts),
        Section("How to read the tables", text=[reading, *notes]),
    ]
    left_out = _left_out(parts)
    if left_out.rows:
        sections.append(Section("Policies that are not compared", table=left_out))
    counted = f"{len(parts)} scenario{'s' if len(parts) > 1 else ''}"
    first = {"scenarios": ", ".join(part.scenario for part in parts), "seeds": ", ".join(map(str, seeds))}
    headline, numbers = _headline(parts, tests)
    return Report(
        f"Policies compared in {counted}",
        [f"{counted}, {len(seeds)} seeds, {runs:,} runs: {what}."],
        sections,
        settings["command"],
        details_of(first, task, settings["machine"]),
        str(settings["machine"].get("fedroster", "")),
        headline,
        numbers,
    )


def _headline(parts: Sequence[_Part], tests: _Tests) -> tuple[str, list[Number]]:
    """In how many scenarios the policy in focus is shown to be better than others, in a sentence and three numbers."""
    rivals = {
        REFERENCE: [next((text for text in part.rivals if text.partition(":")[0] == REFERENCE), "") for part in parts],
        "the best competitor": [_best(part, as_fair=False) for part in parts],
        "the best as fair": [_best(part, as_fair=True) for part in parts],
    }
    numbers = []
    for what, names in rivals.items():
        found = [tests.get((part.scenario, name, part.measure)) for part, name in zip(parts, names, strict=True)]
        words = [test.verdict for test in found if test is not None]
        if words:
            better, worse = words.count("better"), words.count("worse")
            note = f"{len(words) - better - worse} undecided, {worse} worse; faster, or more updates in time"
            tone = "holds" if better > worse else "fails" if worse > better else ""
            numbers.append(Number(f"{better} of {len(words)}", f"scenarios: better than {what}", note, tone))
    if not numbers:
        return "", []
    focus = joined(list(dict.fromkeys(part.focus.partition(":")[0] for part in parts)))
    told = [f"{one.label.partition(': ')[2]} in {one.value} scenarios" for one in numbers[:1] + numbers[-1:]]
    return f"{focus}: {', '.join(dict.fromkeys(told))}", numbers
