"""Text that others chose: nothing in it steers a terminal, forges a line of a log, or is a formula."""

import logging
import re
import unicodedata
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fedroster import Floor, Selector
from fedroster.core.errors import FedrosterError, UnknownNameError
from fedroster.core.outside import cell, marked, pasteable, plain
from fedroster.errors import FairnessWarning, InvalidInputError, PluginWarning, RoundNotBegunError

NASTY = "a\x1b[2J\x07\r\nINFO round 9 begun\u202egpj.exe\u200b\u2028\x9b31m\udc80"


@given(st.text())
def test_what_is_shown_is_seen(text):
    shown = plain(text)
    assert not {unicodedata.category(sign) for sign in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert plain(shown) == shown
    assert text.isprintable() <= (shown == text)


def test_messages_and_warnings_are_plain_whoever_shows_them(caplog):
    assert plain(NASTY).isprintable()
    assert "\n" in plain("a\nb", "\n")
    for error in (UnknownNameError.of("client", NASTY, [NASTY]), RoundNotBegunError(NASTY), FedrosterError(NASTY)):
        assert str(error).isprintable()
        logging.getLogger("x").warning("a node stays out: %s", error)
    with caplog.at_level("INFO", logger="fedroster"):
        Selector(Floor(beta=0.1), cohort_size=2, clients=["a", NASTY]).select()
    assert caplog.records[-1].name == "fedroster"
    assert all(record.getMessage().isprintable() for record in caplog.records)
    for kind in (FairnessWarning, PluginWarning):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            warnings.warn(f"of {NASTY}", kind, stacklevel=1)
        assert str(found[0].message).isprintable()


@pytest.mark.parametrize(
    "text",
    ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "\rx", "-a", "=", "-1e3x", " =1+1", "\n=1", "\uff1d1+1"],
)
def test_formulas_are_text_in_a_spreadsheet(text):
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["site-1", "-1", "+2.5", "-1e-05", "", "a=b", -1, 0.5, None, True])
def test_other_cells_stay(value):
    assert cell(value) is value


@pytest.mark.parametrize(
    "text",
    [
        "[x](javascript:a)",
        "\\[x](javascript:a)",
        "[x]: javascript:a",
        "<b>",
        "<http://x>",
        "```",
        "~~~ {include} x",
        "a\n```",
    ],
)
def test_in_markdown_a_text_is_a_text(text):
    reader = MarkdownIt()
    reader.validateLink = lambda _: True
    shown = reader.render(f"{marked(text)}\n\nafter [x]")
    assert shown == f"<p>{reader.renderInline(marked(text))}</p>\n<p>after [x]</p>\n"
    assert reader.render(f"[{marked(text)}](./a)").count('href="./a"') == 1
    assert not re.findall("<(?!/?p>)", shown)
    row = MarkdownIt("gfm-like", {"linkify": False}).render(f"| a | b |\n| --- | --- |\n| {marked('x | y')} | z |")
    assert row.count("<td>") == 2


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("fedroster compare --policy 'rbcs-f:V=5' --out 'a b'", "fedroster compare --policy rbcs-f:V=5 --out 'a b'"),
        ("fedroster compare; rm -rf ~", "fedroster 'compare;' rm -rf '~'"),
        ("fedroster compare `x` $(x)\nrm x", "fedroster compare '`x`' '$(x)' rm x"),
        ("fedroster 'a\nb'", r"fedroster 'a\nb'"),
        ("curl x | sh", "# curl x | sh"),
        ("fedroster 'a", "# fedroster 'a"),
        ("rm x\nrm y", r"# rm x\nrm y"),
        ("", ""),
    ],
)
def test_a_command_that_is_pasted_is_one_of_ours(command, shown):
    assert pasteable(command) == shown
    assert len(pasteable(f"fedroster {'x' * 10_000_000}")) == 10_000


def test_an_id_has_a_length():
    selector = Selector(Floor(beta=0.1), cohort_size=1, clients=["x" * 1000, "b"])
    with pytest.raises(InvalidInputError, match="of 10,000,000 characters; expected at most 1,000") as refused:
        selector.join(["y" * 10_000_000])
    assert len(str(refused.value)) < 400
    for call in (selector.leave, selector.select):
        with pytest.raises(FedrosterError) as refused:
            call(["y" * 10_000_000])
        assert len(str(refused.value)) < 2000
    assert selector.clients == ("x" * 1000, "b")
