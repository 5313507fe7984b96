"""What a user imports: complete, lazy, and in one place."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedroster
import fedroster.core.errors
import fedroster.errors
import fedroster.policies
import fedroster.testing
import fedroster.types

MODULES = ["fedroster", "fedroster.types", "fedroster.errors", "fedroster.testing", "fedroster.policies"]
STUDY = {"Comparison", "compare", "simulate_many"}
"""Names that need the extra ``study``."""
RECOMMENDED = {"BySpeed", "COCS", "RBCSF", "Floor", "Oort", "PartialPooling", "PowerOfChoice", "RoundRobin", "Uniform"}


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_there(module):
    module = importlib.import_module(module)
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None
    assert set(module.__all__) <= set(dir(module))


def test_every_error_is_public():
    tree = vars(fedroster.core.errors).items()
    errors = {name for name, value in tree if isinstance(value, type) and issubclass(value, Exception)}
    assert errors == set(fedroster.errors.__all__)


def test_the_names_of_the_root_are_few():
    """The others stand in the reference, which a test holds against them."""
    names = set(fedroster.__all__)
    assert names & set(fedroster.policies.__all__) == RECOMMENDED
    assert names & set(fedroster.errors.__all__) == {"FedrosterError"}
    assert {name for name in STUDY if getattr(fedroster, name)} == STUDY
    assert len(names | STUDY) <= 32
    assert set(dir(fedroster)) >= STUDY


def test_all_names_come_without_extras():
    """What no engine needs may be missing."""
    code = """
import sys
sys.modules |= dict.fromkeys(["polars", "torch", "sklearn", "typer", "rich", "jinja2", "altair", "vl_convert"])
import fedroster
exec("from fedroster import *")
print(set(fedroster.__all__) - set(globals()))
try:
    fedroster.compare
except fedroster.errors.MissingDependencyError as error:
    print("study" in str(error))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\nTrue\n"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Selecter'"):
        fedroster.Selecter  # noqa: B018


def test_importing_loads_nothing_and_functions_stay_functions_whatever_was_imported_before():
    code = (
        "import sys, fedroster; print([name for name in sys.modules if name.partition('.')[0] in ('numpy', 'numba')])\n"
        "import fedroster.lab.federated, fedroster.simulation, fedroster.selector\n"
        "assert callable(fedroster.simulate) and callable(fedroster.federate)"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed == "[]\n"


REFERENCE = Path(__file__, "../../docs/reference").resolve()


PAGES = [*sorted(REFERENCE.glob("*.md")), REFERENCE.parent / "policies" / "index.md"]


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_names_what_is_public(module):
    text = "\n".join(page.read_text() for page in PAGES)
    named = re.findall(
        rf"^\.\. (?:py:|auto)(?:class|exception|function|data):: {re.escape(module)}\.(\w+)$", text, re.M
    )
    public = set(importlib.import_module(module).__all__) - {"__version__"}
    if module == "fedroster":  # policies and errors are named where all of them are
        public = (public | STUDY) - set(fedroster.policies.__all__) - set(fedroster.errors.__all__)
    assert sorted(named) == sorted(public)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_reference_names_what_exists(page):
    for kind, name in re.findall(
        r"^\.\. auto(module|class|exception|function|data):: ([\w.]+)$", page.read_text(), re.M
    ):
        path = Path("src", *name.split("."))
        if kind == "module":  # looked up, not imported: an extra may be missing
            assert (REFERENCE.parents[1] / path).with_suffix(".py").exists() or (REFERENCE.parents[1] / path).is_dir()
        else:
            home, _, last = name.rpartition(".")
            assert hasattr(importlib.import_module(home), last), name
