"""One self-contained HTML page: no network, readable on a phone, printable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from fedroster.core.state import write_text_atomically
from fedroster.study.figures import svg_text
from fedroster.study.statistics import LEVEL, Verdict


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure on the page.

    Attributes:
        label: What it shows, for those who cannot see it.
        svg: An SVG element.
        file: Name of the same figure as a file beside the page.
    """

    label: str
    svg: str
    file: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table on the page.

    Attributes:
        columns: Headings.
        rows: Cells as text.
        text: Headings of columns that hold words and not numbers.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page.

    Attributes:
        title: Heading.
        text: Paragraphs before the figures.
        figures: Pictures.
        table: Table, or None.
        notes: Paragraphs in small print behind them.
        pages: Further pages of this kind: their folders, beside the page, by what the link says.
    """

    title: str
    text: Sequence[str] = ()
    figures: Sequence[Picture] = ()
    table: Table | None = None
    notes: Sequence[str] = ()
    pages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """The page.

    Attributes:
        title: Heading.
        lead: What a reader in a hurry should know.
        sections: Its parts.
        command: The command that makes it again.
        settings: Everything that the numbers depend on.
        version: Version of fedroster.
    """

    title: str
    lead: Sequence[str]
    sections: Sequence[Section]
    command: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""


def picture(figure: Figure, label: str, file: str) -> Picture:
    """Put a figure on the page."""
    return Picture(label, svg_text(figure), file)


def claims_table(verdicts: Sequence[Verdict]) -> Table:
    """The paper's claims with what was measured and the verdict."""
    return Table(
        columns=("claim", "where", "tested", "margin", "95 % interval", "p (Holm)", "verdict"),
        rows=[
            (
                verdict.claim.statement,
                verdict.claim.source,
                verdict.claim.measure,
                f"{verdict.weakest.mean:.4g}",
                f"{verdict.weakest.low:.4g} to {verdict.weakest.high:.4g}",
                f"{verdict.adjusted_p:.3g}",
                verdict.word,
            )
            for verdict in verdicts
        ],
        text=("claim", "where", "tested", "verdict"),
    )


TEST_NOTE = (
    "A claim holds if a one-sided paired t test over seeds rejects its opposite with probability of error below "
    f"{LEVEL:.0%} for all claims on this page together (Holm). A claim with several parts holds if every part does; "
    "margin, interval and p are those of its weakest part."
)

BAND_NOTE = "Bands in figures, and numbers behind ±, are 95 % intervals over seeds (Student's t)."


def write_report(report: Report, path: Path) -> None:
    """Write the page, atomically."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedroster.study"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    template = environment.get_template("report.html.j2")
    write_text_atomically(path, template.render(report=report, zip=zip))


def write_markdown(report: Report, path: Path) -> None:
    """Write the page as Markdown beside its figures, atomically, for a documentation."""
    lines = [f"# {report.title}", "", *_paragraphs(report.lead)]
    for section in report.sections:
        lines += [f"## {section.title}", "", *_paragraphs(section.text)]
        lines += [f"![{shown.label}]({shown.file})\n" for shown in section.figures]
        if section.table is not None:
            lines += [_markdown_row(section.table.columns), _markdown_row(["---"] * len(section.table.columns))]
            lines += [_markdown_row(row) for row in section.table.rows] + [""]
        lines += _paragraphs(section.notes)
        lines += [f"[{words}]({folder}/index.md)\n" for words, folder in section.pages.items()]
    lines += ["## How this was made", "", "```", report.command, "```", ""]
    lines += [f"* {name}: {value}" for name, value in report.settings.items()]
    write_text_atomically(path, "\n".join(lines).rstrip() + "\n")


def _paragraphs(sentences: Sequence[str]) -> list[str]:
    return [line for sentence in sentences for line in (sentence, "")]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
