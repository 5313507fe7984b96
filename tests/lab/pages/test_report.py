"""The page: self-contained, readable on a phone, and nothing in it is taken for markup."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest
from markdown_it import MarkdownIt

from fedroster.lab.pages import charts
from fedroster.lab.pages.charts import Axes, Curve, lines
from fedroster.lab.pages.report import (
    Number,
    Picture,
    Report,
    Section,
    Table,
    as_html,
    as_markdown,
    latex_table,
    picture,
    write_page,
)
from fedroster.lab.verdicts.claims_page import claims_sections
from fedroster.lab.verdicts.verdicts import claims_of, judge

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
    for script in page.all("script"):
        assert script.keys() <= {"type"}  # in the page, not beside it
    for tag in ("link", "iframe", "object", "embed", "base", "img"):
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
    return lines({"a <&> b": Curve(x, x, x - 1, x + 1)}, Axes("x", "y"), title=NASTY)


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
                figures=[replace(picture(figure(), f"label {word}", None, "figure"), spec={})],
                table=Table(["policy", "value"], [[f"cell {word}", "1.5 ± 0.1"]], text=["policy"]),
                notes=[f"note {word}"],
            ),
            *claims_sections(verdicts),
            Section("nothing"),
        ],
        command=f"fedroster reproduce {word}",
        settings={"rounds": 500, f"name {word}": f"value {word}", "fedroster": f"0.1 {word}"},
    )


def write(tmp_path, *arguments):
    write_page(report(*arguments), tmp_path)
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_page_needs_no_network_and_is_always_the_same(tmp_path):
    assert_self_contained(page := write(tmp_path))
    assert write(tmp_path) == page
    assert {entry.name for entry in tmp_path.iterdir()} == {"index.md", "report.html"}


def test_the_page_is_readable_on_a_phone(tmp_path):
    text = write(tmp_path)
    page = Page(text)
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")
    assert {"charset": "utf-8"} in page.all("meta")
    assert text.startswith("<!doctype html>\n<html lang=")
    # A wide table scrolls in its own box, and does not widen the page.
    box = '<div class="scroll" tabindex="0" role="region" aria-label="Table: '
    assert text.count("<table>") == text.count(box) == 4  # section, numbers of its figure, one group, details
    assert ".scroll { overflow-x: auto" in text
    assert page.all("svg")[0].keys() >= {"width", "viewbox"}
    # Verdicts stand out.
    assert re.findall(r'<td data-name="[^"]*" class="text (holds|fails)">([^<]+)</td>', text) == [
        ("holds", "holds"),
        ("fails", "contradicted"),
    ]


def test_nothing_is_taken_for_markup(tmp_path):
    plain, nasty = write(tmp_path), write(tmp_path, NASTY)
    page = assert_self_contained(nasty)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in Page(plain).tags]
    assert nasty.count("&lt;script&gt;") > 10
    assert nasty.count("<script") == plain.count("<script")
    assert " ".join(page.text).count(NASTY) >= 10
    assert page.all("figure")[0]["data-name"] == f"label {NASTY}"


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
    assert lines[0] == "# Title a \\| b"
    assert "![label a \\| b](figure.svg)" in lines
    assert "| cell a \\| b | 1.5 ± 0.1 |" in lines
    assert "| policy | value |" in lines
    assert "fedroster reproduce a '|' b" in lines
    assert "* rounds: 500" in lines


def test_cells_of_two_lines():
    """On the page as two lines with their colour, in Markdown as one."""
    ratios = {"random": "0.84 better\n(0.80 to 0.88)", "x" * 50: "1.20 worse\n(1.10 to 1.30)", "p": "1.00\n(0 to 2)"}
    rows = [*ratios.items()]
    report = Report("T", [], [Section("S", table=Table(("policy", "ratio"), rows, text=("policy",)))], "cmd")
    text = as_html(report)
    assert '<td data-name="ratio" class=" holds">0.84 better\n(0.80 to 0.88)</td>' in text
    assert '<td data-name="ratio" class=" fails">1.20 worse\n(1.10 to 1.30)</td>' in text
    assert '<td data-name="ratio" class="">1.00\n(0 to 2)</td>' in text
    assert '<td data-name="policy" class="text">random</td>' in text
    assert "| random | 0.84 better (0.80 to 0.88) |" in as_markdown(report)


def test_a_page_begins_with_its_answer_and_has_folded_parts_and_alternatives():
    one, other = (Picture(f"by {tab}", "<svg></svg>", "x.svg", tab=tab) for tab in ("round", "time"))
    numbers = [Number("-3 %", "time", "n", "holds")]
    section = Section("S", figures=[one, other], folded=True)
    page = Report("T", ["Played."], [section], "cmd", headline="a: shorter", numbers=numbers)
    text = as_html(page)
    assert "<title>a: shorter</title>" in text
    order = ['<p class="headline">a: shorter</p>', '<b class="holds">-3 %</b>', "Played.", "<summary><h2>S</h2>"]
    assert sorted(order, key=text.index) == order
    assert as_markdown(page).startswith("# T\n\n**a: shorter**\n\n* time: -3 % (n)\n\nPlayed.\n")
    assert Page(text).open == []
    assert re.findall(r'data-tab="(\w+)"', text) == ["round", "time"]


def test_a_chart_is_on_the_page_with_the_library_that_draws_it(monkeypatch):
    monkeypatch.setattr(charts, "library", lambda: "let vega")
    shown = picture(figure(), NASTY, None, "figure")
    text = as_html(Report("T", [], [Section("S", figures=[shown])], "cmd"))
    assert_self_contained(text)
    (found,) = re.findall(r'<script type="application/json">(.*)</script>', text)
    (data,) = json.loads(found)["datasets"].values()
    assert data["label"] == ["a <&> b"] * 4
    assert data["high"] == [2.0, 3.0, 4.0, 5.0]
    assert text.count("let vega") == 1
    assert "let vega" not in as_html(Report("T", [], [Section("S", figures=[replace(shown, spec={})])], "cmd"))
    # A page runs its own scripts alone.
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in scripts]
    assert f"script-src 'sha256-{digests[0]}' 'sha256-{digests[1]}';" in policy
    assert len(scripts) == 2
    assert "unsafe-eval" not in policy
    assert "base-uri 'none'; form-action 'none'" in policy


def test_no_name_is_a_link_or_is_not_seen():
    odd = "[x](javascript:alert(1)) \u202egpj.exe\x1b[2J\u200b"
    page = Report(odd, [odd], [Section(odd, table=Table((odd,), [(odd,)]), pages={odd: "javascript:alert(1)//"})], odd)
    text, markdown = as_html(page), as_markdown(page)
    assert re.findall('href="([^#"][^"]*)"', text) == ["./javascript%3Aalert%281%29///report.html"]
    assert "(./javascript%3Aalert%281%29///index.md)" in markdown
    assert re.findall('href="([^"]*)"', MarkdownIt().render(markdown)) == ["./javascript%3Aalert%281%29///index.md"]
    assert "# [x](javascript" in markdown.partition("## How this was made")[2]  # a remark of the shell, in a fence
    for shown in (text, markdown):
        assert not {"\u202e", "\x1b", "\u200b"} & set(shown)


def test_each_chart_says_what_it_shows_and_has_its_numbers(tmp_path):
    shown = picture(lines({"floor": CURVE, "random": CURVE}, Axes("round", "s")), "Times", tmp_path, "times")
    assert shown.svg.startswith("<svg")
    assert (tmp_path / shown.file).read_text(encoding="utf-8") == shown.svg
    assert shown.told == "In the end: floor 9, random 9."
    assert shown.numbers.columns == ["label", "x", "mean", "low", "high"]
    assert [row[1] for row in shown.numbers.rows] == ["1", "3", "4", "6", "7", "9"] * 2
    content = unquote(shown.csv.removeprefix("data:text/csv;charset=utf-8,"))
    assert content.splitlines()[:2] == ["label,x,mean,low,high", "floor,1.0,1.0,0.0,2.0"]
    assert len(content.splitlines()) == 1 + 2 * 9
    page = Report("T", [], [Section("S", figures=[shown])], "cmd")
    assert "Numbers" in as_html(page)
    markdown = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(as_markdown(page))
    assert "<p>In the end: floor 9, random 9.</p>" in markdown
    assert markdown.partition("<summary>Numbers</summary>")[2].count("<tr>") == 1 + 2 * 6
    assert (
        picture(lines({"a": Curve(*(np.empty(0),) * 4)}, Axes("x", "y")), "", None, "none").told
        == "There is nothing to show yet."
    )


def test_a_table_for_a_paper():
    text = latex_table(Table(("policy", "round, s"), [("rbcs-f:V=5", "8.3 ± 0.5"), ("a_b & 5%\\x", "-")], ("policy",)))
    assert text == (
        "\\begin{tabular}{lr}\n\\toprule\npolicy & round, s \\\\\n\\midrule\nrbcs-f:V=5 & 8.3 $\\pm$ 0.5 \\\\\n"
        "a\\_b \\& 5\\%\\textbackslash{}x & - \\\\\n\\bottomrule\n\\end{tabular}\n"
    )


X = np.arange(1.0, 10.0)
CURVE = Curve(X, X, X - 1, X + 1)
