"""Options that several commands share."""

import math
import time

import pytest

from fedroster.cli.options import Training, read_seeds
from fedroster.core.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", [3]), ("0-4,7", [0, 1, 2, 3, 4, 7]), ("5,1", [5, 1]), (" 1 , 2-2 ", [1, 2])]
)
def test_seeds_are_read(text, seeds):
    assert read_seeds(text) == seeds


MALFORMED = ("3-1", "a", "", "1,", "1-", "-1", "1-2-3", "1.5", "0x1", "\u00b2", "1-b")
WRONG = dict.fromkeys(MALFORMED, "0-4 or 1,3,5") | dict.fromkeys(("1,1", "0-4,2"), "each seed once")


@pytest.mark.parametrize(
    ("text", "expected"), [*WRONG.items(), *((text, "100,000") for text in ("0-99999999999", "0-9,10-100000"))]
)
def test_seeds_that_are_none(text, expected):
    """A range is checked before it is spelt out: it may be too long for the memory."""
    with pytest.raises(ConfigurationError, match=expected):
        read_seeds(text)


def test_the_time_is_given_in_minutes(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    assert Training(minutes=2.0).conditions().stop_at == 1120.0
    assert Training().conditions().stop_at == math.inf
