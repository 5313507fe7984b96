"""One self-contained HTML page: no network, readable on a phone, printable.

A page begins with what it has found, in one sentence and three numbers; then come sections with figures and tables.
Figures can be pointed at, and tables sorted, where scripts run; elsewhere they are pictures and tables.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from fedroster.parts import marked, pasteable, plain, write_text_atomically
from fedroster.version import __version__

if TYPE_CHECKING:
    from fedroster.lab.pages.charts import Figure


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure on the page.

    Attributes:
        file: File beside the page that has it too.
        spec: The same to point at (:func:`~fedroster.lab.pages.charts.by_column`).
        tab: What distinguishes the figures of a section, if only one of them is shown at a time.
        told: What it shows, in a sentence with numbers.
        numbers: The same as a table, some points of each curve.
        csv: All of its numbers, as the address of a CSV file that is part of the page.
    """

    label: str
    svg: str
    file: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    tab: str = ""
    told: str = ""
    numbers: Table | None = None
    csv: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table on the page; ``text`` are columns of words and not of numbers, ``about`` is what columns mean."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text: Sequence[str] = ()
    about: Mapping[str, str] = field(default_factory=dict)


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
class Number:
    """A number of the headline with its unit, what it is, small print, and its tone: "holds", "fails" or empty."""

    value: str
    label: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The page: what it has found, its parts, and everything that the numbers depend on.

    Attributes:
        lead: Sentences below the headline.
        command: The command that makes it again; empty for a page that follows a log.
        settings: What the numbers depend on.
        headline: The answer, in one sentence.
        numbers: The three numbers of the answer.
        hidden: Labels that charts hide until a reader chooses them, where there are too many.
    """

    title: str
    lead: Sequence[str]
    sections: Sequence[Section]
    command: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    headline: str = ""
    numbers: Sequence[Number] = ()
    hidden: Sequence[str] = ()


def picture(figure: Figure, label: str, folder: Path | None, name: str, tab: str = "") -> Picture:
    """Put a figure on the page, and as a file beside it where the page has a folder."""
    from fedroster.lab.pages.charts import by_column, csv_of, data_of, numbers_of, svg_of, told  # loads Altair

    spec = figure.to_dict()
    svg = svg_of(spec, name)
    if folder is not None:
        write_text_atomically(folder / f"{name}.svg", svg)
    frame = data_of(figure)
    return Picture(
        label,
        svg,
        f"{name}.svg",
        by_column(spec),
        tab=tab,
        told=told(frame),
        numbers=Table(*numbers_of(frame), ("panel", "label", "kind")),
        csv=csv_of(frame),
    )


BAND_NOTE = "Bands in figures, and numbers behind ±, are 95 % intervals over seeds (Student's t)."


def write_page(report: Report, folder: Path) -> None:
    """Write the page as HTML, and as Markdown for a documentation, atomically."""
    write_text_atomically(folder / "report.html", as_html(report))
    write_text_atomically(folder / "index.md", as_markdown(report))


_TEMPLATES = Path(__file__).with_name("templates")


def as_html(report: Report, *, template: str = "report.html.j2", follows: bool = False) -> str:
    """The page, with its figures inside, by a template that may extend ``report.html.j2``.

    One that ``follows`` a log loads itself again and again.
    """
    names = ["page.css", "page.js", *["follow.js"] * follows]
    css, *scripts = ((_TEMPLATES / name).read_text(encoding="utf-8") for name in names)
    if any(shown.spec for section in report.sections for shown in section.figures):
        from fedroster.lab.pages.charts import library  # loads Altair

        scripts.insert(0, library())
    digests = {each: b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts}
    named = {script: Markup(f"'sha256-{digest}'") for script, digest in digests.items()}  # its policy runs no other
    made = _templates().get_template(template)
    return made.render(
        report=report,
        zip=zip,
        css=css,
        scripts=named,
        json=_json,
        command=pasteable(report.command),
        made_by=report.settings.get("fedroster", __version__),
    )


@cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: plain(value, "\n") if type(value) is str else value,
    )


def _json(spec: Mapping[str, Any]) -> str:
    """A chart for a script element: nothing in it ends it."""
    return json.dumps(spec, separators=(",", ":")).replace("<", "\\u003c")


def latex_table(table: Table) -> str:
    """A table alone, for LaTeX with the package booktabs."""
    signs = {sign: f"\\{sign}" for sign in "&%$#_{}"} | {"~": "\\textasciitilde{}", "^": "\\^{}"}
    signs |= {"±": "$\\pm$", "\\": "\\textbackslash{}"}
    lines = (table.columns, *table.rows)
    cells = [["".join(signs.get(each, each) for each in plain(cell)) for cell in row] for row in lines]
    rows = [" & ".join(row) for row in cells]
    kinds = "".join("l" if name in table.text else "r" for name in table.columns)
    head = [f"\\begin{{tabular}}{{{kinds}}}", "\\toprule", rows[0] + " \\\\", "\\midrule"]
    return "\n".join([*head, *(f"{row} \\\\" for row in rows[1:]), "\\bottomrule", "\\end{tabular}", ""])


def as_markdown(report: Report) -> str:
    """The page as Markdown beside its figures; names in it are no markup, and link to nothing."""
    lines = [f"# {marked(report.title)}", ""]
    if report.headline:
        lines += [f"**{marked(report.headline)}**", ""]
    lines += [f"* {marked(one.label)}: {marked(one.value)} ({marked(one.note)})" for one in report.numbers]
    lines += [""] * bool(report.numbers) + _paragraphs(report.lead)
    for section in report.sections:
        title = marked(section.title)
        lines += [f"<details><summary>{title}</summary>" if section.folded else f"## {title}", ""]
        lines += _paragraphs(section.text)
        for shown in section.figures:
            lines += [f"![{marked(shown.label)}]({shown.file})", "", *_paragraphs([shown.told] if shown.told else [])]
            if shown.numbers is not None:
                lines += ["<details><summary>Numbers</summary>", "", *_markdown_table(shown.numbers), "</details>", ""]
        lines += [] if section.table is None else _markdown_table(section.table)
        lines += _paragraphs(section.notes)
        lines += [f"[{marked(words)}](./{quote(folder)}/index.md)\n" for words, folder in section.pages.items()]
        lines += ["</details>", ""] if section.folded else []
    lines += ["## How this was made", "", "```", pasteable(report.command), "```", ""]
    lines += [f"* {marked(name)}: {marked(str(value))}" for name, value in report.settings.items()]
    return "\n".join(lines).rstrip() + "\n"


def _paragraphs(sentences: Sequence[str]) -> list[str]:
    return [line for sentence in sentences for line in (marked(sentence), "")]


def _markdown_table(table: Table) -> list[str]:
    rows = (table.columns, ["---"] * len(table.columns), *table.rows)
    return [*(f"| {' | '.join(map(marked, row))} |" for row in rows), ""]
