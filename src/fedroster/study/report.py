"""One self-contained HTML page: no network, readable on a phone, printable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from fedroster.core.state import write_text_atomically
from fedroster.study.figures import save_png, svg_text


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure on the page, what it shows in words, and the file beside the page that has it too."""

    label: str
    svg: str
    file: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table on the page, cells as text; ``text`` names the columns that hold words and not numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: paragraphs, figures, a table, small print, and folders of further pages by their links.

    One that is ``folded`` shows its title until a reader opens it.
    """

    title: str
    text: Sequence[str] = ()
    figures: Sequence[Picture] = ()
    table: Table | None = None
    notes: Sequence[str] = ()
    pages: Mapping[str, str] = field(default_factory=dict)
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """The page: what a reader in a hurry should know, its parts, and everything that the numbers depend on."""

    title: str
    lead: Sequence[str]
    sections: Sequence[Section]
    command: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""


def picture(figure: Figure, label: str, folder: Path | None, name: str) -> Picture:
    """Put a figure on the page, and as a PNG beside it where the page has a folder."""
    if folder is not None:
        save_png(figure, folder / f"{name}.png")
    return Picture(label, svg_text(figure), f"{name}.png")


BAND_NOTE = "Bands in figures, and numbers behind ±, are 95 % intervals over seeds (Student's t)."


def write_page(report: Report, folder: Path) -> None:
    """Write the page as HTML, and as Markdown for a documentation, atomically."""
    write_text_atomically(folder / "report.html", as_html(report))
    write_text_atomically(folder / "index.md", as_markdown(report))


def as_html(report: Report) -> str:
    """The page, with its figures inside."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fedroster.study"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template("report.html.j2").render(report=report, zip=zip)


def html_table(table: Table, caption: str) -> str:
    """A table alone, for a notebook."""
    row = jinja2.Environment(autoescape=True).from_string(
        "<table><caption>{{ caption }}</caption><tr>{% for cell in table.columns %}<th>{{ cell }}</th>{% endfor %}</tr>"
        "{% for row in table.rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</table>"
    )
    return row.render(table=table, caption=caption)


def as_markdown(report: Report) -> str:
    """The page as Markdown beside its figures."""
    lines = [f"# {report.title}", "", *_paragraphs(report.lead)]
    for section in report.sections:
        opening = (
            [f"<details><summary>{section.title}</summary>", ""] if section.folded else [f"## {section.title}", ""]
        )
        lines += [*opening, *_paragraphs(section.text)]
        lines += [f"![{shown.label}]({shown.file})\n" for shown in section.figures]
        if section.table is not None:
            lines += [_markdown_row(section.table.columns), _markdown_row(["---"] * len(section.table.columns))]
            lines += [_markdown_row(row) for row in section.table.rows] + [""]
        lines += _paragraphs(section.notes)
        lines += [f"[{words}]({folder}/index.md)\n" for words, folder in section.pages.items()]
        lines += ["</details>", ""] if section.folded else []
    lines += ["## How this was made", "", "```", report.command, "```", ""]
    lines += [f"* {name}: {value}" for name, value in report.settings.items()]
    return "\n".join(lines).rstrip() + "\n"


def _paragraphs(sentences: Sequence[str]) -> list[str]:
    return [line for sentence in sentences for line in (sentence, "")]


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
