"""The page: self-contained, readable on a phone, and nothing in it is taken for markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from fedroster.study.claims_page import claims_sections
from fedroster.study.figures import Curve, curves_figure, svg_text
from fedroster.study.report import (
    Picture,
    Report,
    Section,
    Table,
    as_html,
    as_markdown,
    picture,
    write_page,
)
from fedroster.study.verdicts import claims_of, judge

NASTY = """<script>alert("1")</script> & 'quoted' <img src="http://example.org/x.png">"""
VOID = {"meta", "br", "img", "link", "hr", "input"}


class Page(HTMLParser):
    """Tags with attributes, text, and whether every tag is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def assert_self_contained(text):
    page = Page(text)
    assert page.open == []
    for tag in ("script", "link", "iframe", "object", "embed", "base", "img"):
        assert page.all(tag) == []
    for _, attrs in page.tags:
        for name, value in attrs.items():
            if name in ("src", "href", "xlink:href", "srcset", "data", "action", "poster"):
                assert value.startswith(("#", "data:")), (name, value)
            assert not name.startswith("on")
    assert "@import" not in text
    assert not re.search(r"url\((?![\"']?(#|data:))", text)
    return page


def figure():
    x = np.arange(1.0, 5.0)
    return curves_figure({"a <&> b": Curve(x, x, x - 1, x + 1)}, x_label="x", y_label="y", title=NASTY.replace("$", ""))


def report(word="text"):
    ups, mixed = np.array([1.0, 1.1, 0.9, 1.05, 1.2, 0.95]), np.array([-1.0, 1.1, 0.9, -1.2, 0.1, -0.2])
    asked = {"a": (f"claim {word}", "tested", [ups]), "b": ("another", "tested", [-ups])}
    verdicts = judge(claims_of(f"Fig. 2 {word}", asked | {"c": ("a third", "tested", [mixed])}))
    return Report(
        title=f"Title {word}",
        lead=[f"lead {word}", "second"],
        sections=[
            Section(
                f"section {word}",
                text=[f"paragraph {word}"],
                figures=[Picture(f"label {word}", svg_text(figure()), "figure.png")],
                table=Table(["policy", "value"], [[f"cell {word}", "1.5 ± 0.1"]], text=["policy"]),
                notes=[f"note {word}"],
            ),
            *claims_sections(verdicts),
            Section("nothing"),
        ],
        command=f"fedroster reproduce {word}",
        settings={"rounds": 500, f"name {word}": f"value {word}"},
        version=f"0.1 {word}",
    )


def write(tmp_path, *arguments):
    write_page(report(*arguments), tmp_path)
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_page_needs_no_network(tmp_path):
    assert_self_contained(write(tmp_path))
    assert {entry.name for entry in tmp_path.iterdir()} == {"index.md", "report.html"}


def test_the_page_is_readable_on_a_phone(tmp_path):
    text = write(tmp_path)
    page = Page(text)
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")
    assert {"charset": "utf-8"} in page.all("meta")
    assert text.startswith("<!doctype html>\n<html lang=")
    assert "figure svg { width: 100%; height: auto;" in text
    # A wide table scrolls in its own box, and does not widen the page.
    assert text.count("<table>") == text.count('<div class="scroll"><table>') == 3  # one group, details
    assert ".scroll { overflow-x: auto" in text
    assert "width" in page.all("svg")[0]
    assert "viewbox" in page.all("svg")[0]


def test_everything_is_on_the_page(tmp_path):
    page = Page(write(tmp_path))
    text = " ".join(" ".join(page.text).split())
    expected = (
        "Title text",
        "lead text",
        "second",
        "section text",
        "paragraph text",
        "policy",
        "cell text",
        "1.5 ± 0.1",
    )
    for words in (*expected, "note text", "fedroster reproduce text", "rounds 500", "name text value text"):
        assert words in text
    assert page.all("figure") == [{"role": "img", "aria-label": "label text"}]
    assert len(page.all("svg")) == 1


def test_nothing_is_taken_for_markup(tmp_path):
    plain, nasty = write(tmp_path), write(tmp_path, NASTY)
    page = assert_self_contained(nasty)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in Page(plain).tags]
    assert nasty.count("&lt;script&gt;") > 10
    assert "<script" not in nasty
    assert " ".join(page.text).count(NASTY) >= 10
    assert page.all("figure")[0]["aria-label"] == f"label {NASTY}"


def test_verdicts_stand_out(tmp_path):
    text = write(tmp_path)
    assert re.findall(r'<td class="text name (holds|fails)">([^<]+)</td>', text) == [
        ("holds", "holds"),
        ("fails", "contradicted"),
    ]


def test_the_same_report_is_the_same_page(tmp_path):
    assert write(tmp_path) == write(tmp_path)


def test_a_report_replaces_the_old_one_or_nothing(tmp_path):
    before = write(tmp_path)
    broken = report()
    object.__setattr__(broken, "sections", [None])
    with pytest.raises(Exception, match="None"):
        write_page(broken, tmp_path)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"index.md", "report.html"}


def test_the_page_as_markdown(tmp_path):
    write_page(report("a | b"), tmp_path)
    lines = (tmp_path / "index.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Title a | b"
    assert "![label a | b](figure.png)" in lines
    assert "| cell a \\| b | 1.5 ± 0.1 |" in lines
    assert "| policy | value |" in lines
    assert "fedroster reproduce a | b" in lines
    assert "* rounds: 500" in lines


def test_a_picture_stands_on_the_page_and_beside_it(tmp_path):
    shown = picture(figure(), "label", tmp_path, "figure")
    assert (shown.label, shown.file) == ("label", "figure.png")
    assert shown.svg.startswith("<svg")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_cells_of_two_lines():
    """On the page as two lines with their colour, in Markdown as one."""
    rows = [
        ("random", "0.84 better\n(0.80 to 0.88)"),
        ("x" * 50, "1.20 worse\n(1.10 to 1.30)"),
        ("p", "1.00\n(0 to 2)"),
    ]
    report = Report("T", [], [Section("S", table=Table(("policy", "ratio"), rows, text=("policy",)))], "cmd")
    text = as_html(report)
    assert '<td class=" holds">0.84 better\n(0.80 to 0.88)</td>' in text
    assert '<td class=" fails">1.20 worse\n(1.10 to 1.30)</td>' in text
    assert '<td class="">1.00\n(0 to 2)</td>' in text
    assert '<td class="text name">random</td>' in text
    assert f'<td class="text">{"x" * 50}</td>' in text  # a sentence may wrap
    assert "| random | 0.84 better (0.80 to 0.88) |" in as_markdown(report)
