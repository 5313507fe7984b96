"""fedroster decides which clients take part in each round of federated learning.

Every name is loaded on first use, so that a node that only reports its context starts without compilers and solvers.
All policies are in :mod:`fedroster.policies`, all errors in :mod:`fedroster.errors`.
"""

from importlib import import_module

from fedroster.version import __version__

TYPE_CHECKING = False  # to type checkers it is true; `typing` takes longer to load than all of this

if TYPE_CHECKING:
    from fedroster.catalogue import make_policy as make_policy
    from fedroster.catalogue import make_scenario as make_scenario
    from fedroster.core.errors import FedrosterError as FedrosterError
    from fedroster.lab.compare.result import Comparison as Comparison
    from fedroster.lab.compare.run import compare as compare
    from fedroster.lab.compare.run import simulate_many as simulate_many
    from fedroster.lab.federated import federate as federate
    from fedroster.policies import COCS as COCS
    from fedroster.policies import RBCSF as RBCSF
    from fedroster.policies import BySpeed as BySpeed
    from fedroster.policies import Floor as Floor
    from fedroster.policies import Oort as Oort
    from fedroster.policies import PartialPooling as PartialPooling
    from fedroster.policies import PowerOfChoice as PowerOfChoice
    from fedroster.policies import RoundRobin as RoundRobin
    from fedroster.policies import Uniform as Uniform
    from fedroster.record import Log as Log
    from fedroster.record import Record as Record
    from fedroster.rules.rules import Group as Group
    from fedroster.rules.rules import Rules as Rules
    from fedroster.selector import Cohort as Cohort
    from fedroster.selector import EdgeCohort as EdgeCohort
    from fedroster.selector import EdgeSelector as EdgeSelector
    from fedroster.selector import Selector as Selector
    from fedroster.selector.guard import FailureRules as FailureRules
    from fedroster.simulation import simulate as simulate

_NAMES = {
    "catalogue": "make_policy make_scenario",
    "core.errors": "FedrosterError",
    "lab.compare.result": "Comparison",
    "lab.compare.run": "compare simulate_many",
    "lab.federated": "federate",
    "policies": "COCS RBCSF BySpeed Floor Oort PartialPooling PowerOfChoice RoundRobin Uniform",
    "record": "Log Record",
    "rules.rules": "Group Rules",
    "selector": "Cohort EdgeCohort EdgeSelector Selector",
    "selector.guard": "FailureRules",
    "simulation": "simulate",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

_MODULES = ("errors", "parts", "policies", "simulation", "types")

# What `from fedroster import *` brings: the names that need no extra.
__all__ = [*(name for name, home in _HOMES.items() if not home.startswith("lab.compare")), "__version__"]


def __getattr__(name: str) -> object:
    """Load a name on first use."""
    if name in _MODULES:
        return import_module(f"fedroster.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    try:
        value: object = getattr(import_module(f"fedroster.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or not home.startswith("lab"):
            raise
        from fedroster.core.errors import MissingDependencyError

        raise MissingDependencyError.of(error.name, "study") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
