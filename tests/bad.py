"""Bad values of parameters, as text: ``name=value|value name=value``."""

import math

import pytest

from fedroster.errors import ConfigurationError

NAMES = {"__builtins__": {}, "nan": math.nan, "inf": math.inf}


def values_of(text):
    """Each parameter and the values: numbers, tuples and quoted words of Python, and other words as they are."""

    def read(value):
        try:
            return eval(value, NAMES)
        except NameError:
            return value

    named = (part.partition("=") for part in text.split())
    return {name: [read(value) for value in values.split("|")] for name, _, values in named}


def check_refused(kind, bad, *, shorter=()):
    """Each is refused by its name, of which some endings may be missing."""
    for name, values in bad.items():
        said = name
        for ending in shorter:
            said = said.removesuffix(ending)
        for value in values:
            with pytest.raises(ConfigurationError, match=said):
                kind(**{name: value})
