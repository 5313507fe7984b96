"""Comparisons in several scenarios, a folder for each, and one page above them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedroster.core.errors import ConfigurationError, InvalidInputError, PausedError
from fedroster.study.compare.contrasts import Contrast, against_of, corrected, own_policy, paired
from fedroster.study.compare.figures import panel_of
from fedroster.study.compare.line_up import LineUp
from fedroster.study.compare.page import joined, measured, notes_of, render
from fedroster.study.compare.run import compare, trials_of
from fedroster.study.compare.tables import (
    BUDGET,
    DECISION,
    LEAST_SERVED,
    LOWEST_SERVED,
    OF_ORACLE,
    Measure,
    Settings,
    Values,
    front_measure,
    main_measures,
    read_values,
    summary_of,
)
from fedroster.study.figures import save_png
from fedroster.study.pareto import pareto_panels_figure
from fedroster.study.report import Picture, Report, Section, Table, picture, write_markdown, write_report
from fedroster.study.run import PROCESSES, Engine, key
from fedroster.study.statistics import LEVEL, mean_interval
from fedroster.study.store import machine, read_json, write_json, write_table
from fedroster.study.trial import ALONE, Conditions, Trial
from fedroster.task import Task


@dataclass(frozen=True, slots=True)
class _Part:
    """A scenario's comparison as far as the page above needs it."""

    scenario: str
    folder: str
    values: Values
    settings: Settings
    ours: str

    @property
    def measure(self) -> Measure:
        return front_measure(self.settings)


def folder_of(scenario: str) -> str:
    """Name of a scenario's folder.

    Args:
        scenario: Its name.
    """
    return scenario.replace("/", "-")


def compare_all(
    *,
    line_ups: Mapping[str, LineUp],
    seeds: Sequence[int],
    task: Task | None,
    target_accuracy: float,
    against: Sequence[str],
    folder: Path,
    command: str,
    workers: int | None = None,
    engine: Engine = PROCESSES,
    conditions: Conditions = ALONE,
    progress: Callable[[float], None] | None = None,
) -> pl.DataFrame:
    """Compare policies in several scenarios, each in a folder of its own, and write one page above them.

    Args:
        line_ups: Who is compared in each scenario, and how.
        seeds: Seeds.
        task: What is trained; None for no training.
        target_accuracy: For the time to accuracy, in (0, 1).
        against: As for :func:`~fedroster.study.compare.run.compare`; a policy is a base only where it takes part.
        folder: Where to write.
        command: The command that makes it again, for the pages.
        workers: Runs at the same time; None for one for each core.
        engine: Where they run.
        conditions: Device, data and the end of the time.
        progress: Called with the number of runs that are done, parts of runs included.

    Returns:
        What :func:`render_all` returns.

    Raises:
        ConfigurationError: If a parameter is out of its range, or a folder belongs to another comparison.
        PausedError: If the time was up first; the same call goes on.
    """
    folders = {scenario: folder_of(scenario) for scenario in line_ups}
    if len(set(folders.values())) < len(folders):
        raise ConfigurationError(f"scenarios {list(folders)} would share a folder; expected names that differ")
    known = folder / "settings.json"
    if known.exists() and "folders" not in read_json(known):
        raise ConfigurationError(
            f"{folder} holds something else than comparisons in several scenarios: choose another folder or delete it"
        )
    found = {name for line in line_ups.values() for name in against_of(line.policies, against, required=False)}
    for name in against:
        if not any(text == name or text.partition(":")[0] == name for text in found):
            raise ConfigurationError(f"--against is {name!r}, which takes part in no scenario; expected one that does")
    trials = {
        scenario: trials_of(
            scenario,
            line.policies,
            seeds,
            num_rounds=line.num_rounds,
            rate=line.rate,
            task=task,
            settings=line.settings,
        )
        for scenario, line in line_ups.items()
    }
    before = 0

    def advance(done: float) -> None:
        if progress is not None:
            progress(before + done)

    for scenario, line in line_ups.items():
        try:
            compare(
                scenario=scenario,
                policies=line.policies,
                seeds=seeds,
                num_rounds=line.num_rounds,
                task=task,
                target_accuracy=target_accuracy,
                settings=line.settings,
                folder=folder / folders[scenario],
                command=command,
                rate=line.rate,
                left_out=line.left_out,
                against=against_of(line.policies, against, required=False),
                workers=workers,
                engine=engine,
                conditions=conditions,
                progress=advance,
            )
        except PausedError as error:
            done = sum(_finished(some, folder / folders[name] / "trials") for name, some in trials.items())
            raise PausedError.of(done, sum(map(len, trials.values()))) from error
        before += len(trials[scenario])
    codes = [read_json(folder / name / "settings.json")["machine"]["code"] for name in folders.values()]
    description = {
        "command": command,
        "folders": folders,
        "seeds": list(seeds),
        "task": None if task is None else asdict(task),
        "target_accuracy": target_accuracy,
        "against": list(against),
        "machine": machine() | {"code": "; ".join(dict.fromkeys(codes))},
    }
    write_json(folder / "settings.json", description)
    return _overview(folder)


def _finished(trials: Sequence[Trial], folder: Path) -> int:
    return sum((folder / f"{key(trial)}.npz").exists() for trial in trials)


def is_of_several(folder: Path) -> bool:
    """Whether :func:`compare_all` wrote a folder.

    Args:
        folder: The folder.
    """
    return (folder / "settings.json").exists() and "folders" in read_json(folder / "settings.json")


def render_all(folder: Path) -> pl.DataFrame:
    """Make all pages again: that of each scenario whose tables are there, and the one above them.

    Args:
        folder: A folder that :func:`compare_all` wrote, with or without the tables of every round and client.

    Returns:
        A row for each scenario, policy and main measure, and how our own policy does against it.

    Raises:
        InvalidInputError: If something else is missing or damaged.
    """
    for name in _folders(folder).values():
        if (folder / name / "rounds.csv").exists() or (folder / name / "participation.parquet").exists():
            render(folder / name)
    return _overview(folder)


def _folders(folder: Path) -> dict[str, str]:
    folders = read_json(folder / "settings.json").get("folders")
    if not isinstance(folders, dict) or not folders:
        raise InvalidInputError(f"{folder / 'settings.json'} names no folders of scenarios")
    return folders


def _overview(folder: Path) -> pl.DataFrame:
    settings = read_json(folder / "settings.json")
    for name in ("command", "seeds", "machine"):
        if name not in settings:
            raise InvalidInputError(
                f"{folder / 'settings.json'} has no {name!r}; expected what `fedroster compare` wrote"
            )
    parts = []
    for scenario, name in _folders(folder).items():
        values, own = read_values(folder / name)
        parts.append(_Part(scenario, name, values, own, own_policy(own["policies"])))
    tests = _tests(parts)
    table = _table(parts, tests)
    write_table(table, folder / "overview.csv")
    label = "Every scenario: up and right is better"
    figure = pareto_panels_figure(
        [panel_of(part.values, part.settings, part.measure, ours=part.ours, title=part.scenario) for part in parts],
        title=label,
    )
    save_png(figure, folder / "overview.png")
    page = _page(parts, tests, settings, picture(figure, label, "overview.png"))
    write_report(page, folder / "report.html")
    write_markdown(page, folder / "index.md")
    return table


# -------------------------------------------------------------------- numbers


_Tests = Mapping[tuple[str, str, Measure], Contrast]  # by scenario, rival and measure


def _compared(part: _Part) -> tuple[Measure, Measure]:
    """In what our own policy stands against every other: what the scenario is about, and who is served least."""
    return part.measure, LEAST_SERVED


def _tests(parts: Sequence[_Part]) -> _Tests:
    """Our own policy against every other in every scenario, corrected together."""
    keys, found = [], []
    for part in parts:
        for rival, theirs in part.values.items():
            if not part.ours or rival == part.ours:
                continue
            for measure in _compared(part):
                mine = part.values[part.ours]
                test = paired(part.ours, rival, measure, mine[measure.name], theirs[measure.name])
                if test is not None:
                    keys.append((part.scenario, rival, measure))
                    found.append(test)
    return dict(zip(keys, corrected(found), strict=True))


def _table(parts: Sequence[_Part], tests: _Tests) -> pl.DataFrame:
    rows = []
    for part in parts:
        for text, own in part.values.items():
            for measure in main_measures(part.settings):
                shown = mean_interval(own[measure.name])
                row: dict[str, Any] = {
                    "scenario": part.scenario,
                    "policy": text,
                    "measure": measure.name,
                    "mean": shown.mean,
                    "low": shown.low,
                    "high": shown.high,
                }
                test = tests.get((part.scenario, text, measure))
                against = {} if test is None else test.row()
                row["ours"] = part.ours if test is not None else None
                names = ("difference", "difference_low", "difference_high", "p", "p_holm", "verdict")
                rows.append(row | {name: against.get(name) for name in names})
    schema = dict.fromkeys(("difference", "difference_low", "difference_high", "p", "p_holm"), pl.Float64)
    texts: dict[str, Any] = {"ours": pl.String, "verdict": pl.String}
    return pl.DataFrame(rows, schema_overrides=schema | texts, infer_schema_length=None).with_columns(
        pl.selectors.float().fill_nan(None)
    )


# -------------------------------------------------------------------- text


def _counts(part: _Part, tests: _Tests) -> str:
    """Than how many rivals ours is better, open, and worse; those who know the truth are no rivals."""
    rivals = [text for text in part.values if text != part.ours and text not in part.settings["omniscient"]]
    words = [test.verdict for rival in rivals if (test := tests.get((part.scenario, rival, part.measure))) is not None]
    open_ = len(rivals) - words.count("better") - words.count("worse")
    return f"{words.count('better')} / {open_} / {words.count('worse')}"


def _best(part: _Part, *, as_fair: bool) -> str:
    """The other policy with the best mean in what the scenario is about, none that knows the truth; empty if none.

    Args:
        part: The scenario.
        as_fair: Only of those that serve the least served at least as well as ours does, by the means.
    """
    floor = float(part.values[part.ours][LEAST_SERVED.name].mean()) if as_fair else 0.0
    means = {
        text: float(own[part.measure.name].mean())
        for text, own in part.values.items()
        if text != part.ours
        and text not in part.settings["omniscient"]
        and np.isfinite(own[part.measure.name]).all()
        and own[LEAST_SERVED.name].mean() >= floor
    }
    if not means:
        return ""
    return min(means, key=means.__getitem__) if part.measure.less else max(means, key=means.__getitem__)


def _heads(parts: Sequence[_Part], tests: _Tests) -> Table:
    """A row for each scenario: our own policy and the best of the others."""
    rows = []
    for part in parts:
        if not part.ours:
            continue
        summary = summary_of(part.values, part.settings).row(by_predicate=pl.col("policy") == part.ours, named=True)
        cells = [
            part.scenario,
            part.ours,
            f"{measured(summary, part.measure)}{' s' if part.measure.less else ''}",
        ]
        cells.append(measured(summary, OF_ORACLE) if OF_ORACLE in main_measures(part.settings) else "-")
        for as_fair in (False, True):
            rival = _best(part, as_fair=as_fair)
            test = tests.get((part.scenario, rival, part.measure))
            cells += [rival or "none", test.shown() if test is not None else "-"]
        rows.append((*cells, _counts(part, tests)))
    columns = (
        *("scenario", "ours", "a round", OF_ORACLE.heading, "the best other", "ours to it"),
        *("the best as fair", "ours to this", "better / open / worse"),
    )
    return Table(columns, rows, text=("scenario", "ours", "the best other", "the best as fair"))


def _verdicts(part: _Part, tests: _Tests) -> list[str]:
    """What is shown of our own policy in a scenario, in sentences."""
    rivals = [text for text in part.values if text != part.ours and text not in part.settings["omniscient"]]
    if not part.ours or not any((part.scenario, rival, part.measure) in tests for rival in rivals):
        return []

    def shown(verdict: str, *measures: Measure) -> list[str]:
        return [
            rival
            for rival in rivals
            if all(
                (test := tests.get((part.scenario, rival, measure))) is not None and test.verdict == verdict
                for measure in measures
            )
        ]

    more, fewer = ("shorter", "longer") if part.measure.less else ("more", "fewer")
    what = "rounds" if part.measure.less else "updates in time"
    sentences = [
        f"{part.ours} is shown to have {more} {what} than {len(shown('better', part.measure))} of the {len(rivals)} "
        "others that do not know the truth"
        + (f", and {fewer} than {joined(worse)}." if (worse := shown("worse", part.measure)) else ".")
    ]
    for beaten, words, none in (
        (
            shown("worse", LEAST_SERVED),
            "Shown to serve the least served better",
            "Nobody is shown to serve the least served better",
        ),
        (shown("worse", *_compared(part)), "Shown to be better in both", "Nobody is shown to be better in both"),
        (shown("better", *_compared(part)), "It is shown to be better in both than", ""),
    ):
        if beaten:
            sentences.append(f"{words}{' ' if words.endswith('than') else ': '}{joined(beaten)}.")
        elif none:
            sentences.append(f"{none}.")
    return [" ".join(sentences)]


def _section(part: _Part, tests: _Tests) -> Section:
    """A scenario: what every policy does there, and our own against it."""
    # Those that fit on the page beside the differences; the scenario's own page has all.
    measures = [
        measure
        for measure in main_measures(part.settings)
        if not (part.settings["has_prices"] and measure in (BUDGET, LOWEST_SERVED, DECISION))
    ]
    columns = ["policy", *(measure.heading for measure in measures)]
    own = [measure for measure in _compared(part) if any(key[::2] == (part.scenario, measure) for key in tests)]
    columns += [f"ours: {measure.tested}" for measure in own]
    rows = []
    summary = summary_of(part.values, part.settings).sort(
        part.measure.name, descending=not part.measure.less, nulls_last=True, maintain_order=True
    )
    for row in summary.iter_rows(named=True):
        cells = [row["policy"], *(measured(row, measure) for measure in measures)]
        for measure in own:
            test = tests.get((part.scenario, row["policy"], measure))
            cells.append(test.shown() if test is not None else "-")
        rows.append(tuple(cells))
    settings = part.settings
    changed = "".join(f", {name}={value}" for name, value in settings["settings"].items())
    return Section(
        part.scenario,
        text=[f"{len(part.values)} policies, {settings['rounds']:,} rounds{changed}.", *_verdicts(part, tests)],
        table=Table(columns, rows, text=("policy",)),
        pages={f"All measures, tests and figures of {part.scenario}": part.folder},
    )


def _left_out(parts: Sequence[_Part]) -> Table:
    """Who is not compared where, and why; a row for each reason."""
    where: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        for name, reason in part.settings["left_out"].items():
            where.setdefault((name, reason), []).append(part.scenario)
    rows = [(name, joined(found), reason) for (name, reason), found in where.items()]
    return Table(("policy", "where", "why"), rows, text=("policy", "where", "why"))


def _notes(parts: Sequence[_Part]) -> list[str]:
    """What the columns mean: every note once."""
    return list(dict.fromkeys(note for part in parts for note in notes_of(part.settings)))


_TEST_NOTE = (
    "Ours: our own policy against that of the row, with the same seed; ratios of times and updates, percentage points "
    "of shares; 95 % intervals. Two-sided paired t tests over seeds, with Holm's correction over all of these tests on "
    f"this page: better (ours is) and worse are wrong with probability below {LEVEL:.0%} for all together. Where "
    "neither is said, these seeds do not tell. Intervals are not corrected. All numbers and p-values: `overview.csv`, "
    "which the command below writes."
)


def _page(parts: Sequence[_Part], tests: _Tests, settings: Settings, shown: Picture) -> Report:
    seeds, task = settings["seeds"], parts[0].settings["task"]
    runs = sum(len(part.values) for part in parts) * len(seeds)
    what = "rounds without training" if task is None else f"federated training, task {task['name']}"
    lead = [
        f"{len(parts)} scenarios, {len(seeds)} seeds, {runs:,} runs: {what}.",
        "Our own policy in each scenario, by the time of a round or, where clients have prices and updates a deadline, "
        "by the updates in time: beside the best other that does not know the truth, and the best that serves the "
        "least served as well; and how many of these others it is shown to be better than, how many are open, and how "
        "many are shown to be better.",
    ]
    sections = [
        Section("Our own policies", table=_heads(parts, tests)),
        Section(
            "Time and updates against fairness",
            figures=[shown],
            notes=[
                "Times grow to the left. Bars: 95 % intervals over seeds. Line: the Pareto front of the means. The "
                "page of each scenario has all labels."
            ],
        ),
        *(_section(part, tests) for part in parts),
        Section("How to read the tables", text=[_TEST_NOTE, *_notes(parts)]),
    ]
    left_out = _left_out(parts)
    if left_out.rows:
        sections.append(Section("Policies that are not compared", table=left_out))
    details = {
        "scenarios": ", ".join(part.scenario for part in parts),
        "seeds": ", ".join(map(str, seeds)),
        **{f"task: {name}": value for name, value in (task or {}).items() if value is not None},
        **settings["machine"],
    }
    version = str(settings["machine"].get("fedroster", ""))
    return Report("Every scenario: policies compared", lead, sections, settings["command"], details, version)
