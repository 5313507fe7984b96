"""Parameters are checked against their types when a policy is made."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pytest

from fedroster.core.errors import ConfigurationError
from fedroster.core.parameters import Count, NotNegative, Parameters, Range, Share


@dataclass(frozen=True, slots=True)
class Options(Parameters):
    share: Share = 0.5
    count: Count = 1
    gap: NotNegative | None = None
    percent: Annotated[float, Range(above=0.0, most=100.0)] = 30.0
    weights: tuple[NotNegative, ...] = ()
    kind: Literal["one", "other"] = "one"
    flag: bool = True
    name: str = ""


@dataclass(frozen=True, slots=True)
class More(Options):
    extra: Share = 0.0


def test_what_is_in_range_is_kept():
    made = More(share=1, count=3, gap=0.0, percent=100.0, weights=(0.0, 2.0), kind="other", flag=False, extra=1.0)
    assert (made.share, made.gap, made.weights, made.extra) == (1, 0.0, (0.0, 2.0), 1.0)
    assert More().gap is None
    assert not More(flag=np.bool_(False), count=np.int64(2), share=np.float32(0.5)).flag


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"share": 1.5}, r"share is 1.5; expected a finite number >= 0 and <= 1 .1.5 % is 0.015.$"),
        ({"share": float("nan")}, "share is nan"),
        ({"share": True}, "share is True"),
        ({"share": "1"}, "share is '1'"),
        ({"share": None}, "share is None"),
        ({"gap": 1j}, "gap is 1j"),
        ({"gap": float("inf")}, "gap is inf"),
        ({"count": 0}, r"count is 0; expected an integer >= 1$"),
        ({"count": 1.0}, "count is 1.0; expected an integer"),
        ({"count": True}, "count is True; expected an integer"),
        ({"gap": -1.0}, r"gap is -1.0; expected a finite number >= 0$"),
        ({"percent": 0.0}, r"percent is 0.0; expected a finite number <= 100 and > 0$"),
        ({"weights": (1.0, -2.0)}, r"an entry of weights is -2.0; expected a finite number >= 0$"),
        ({"weights": 5.0}, "weights is 5.0; expected a tuple"),
        ({"weights": (each for each in (1.0, 2.0))}, "weights is <generator .*; expected a tuple"),
        ({"name": 5}, "name is 5; expected a text"),
        ({"kind": "third"}, "kind is 'third'; expected one of one, other"),
        ({"flag": "false"}, "flag is 'false'; expected True or False"),
        ({"extra": -0.1}, "extra is -0.1"),
    ],
)
def test_what_is_not_says_what_was_expected(given, message):
    with pytest.raises(ConfigurationError, match=message):
        More(**given)
