"""fedroster decides which clients take part in each round of federated learning.

Every name is loaded on first use, so that a node that only reports its context starts without compilers and solvers.
"""

from importlib import import_module

from fedroster.version import __version__

TYPE_CHECKING = False  # to type checkers it is true; `typing` takes longer to load than all of this

if TYPE_CHECKING:
    from fedroster.catalogue import make_policy as make_policy
    from fedroster.catalogue import make_scenario as make_scenario
    from fedroster.core.errors import *
    from fedroster.lab.compare.run import compare as compare
    from fedroster.lab.compare.run import simulate_many as simulate_many
    from fedroster.lab.federated import federate as federate
    from fedroster.policies import *
    from fedroster.record import Record as Record
    from fedroster.rules.rules import Group as Group
    from fedroster.rules.rules import Rules as Rules
    from fedroster.selector import Cohort as Cohort
    from fedroster.selector import EdgeCohort as EdgeCohort
    from fedroster.selector import EdgeSelector as EdgeSelector
    from fedroster.selector import Selector as Selector
    from fedroster.selector.failures import FailureRules as FailureRules
    from fedroster.simulation import load_checkpoint as load_checkpoint
    from fedroster.simulation import save_checkpoint as save_checkpoint
    from fedroster.simulation import simulate as simulate

_NAMES = {
    "catalogue": "make_policy make_scenario",
    "core.errors": (
        "ConfigurationError DataFileError DownloadError FairnessWarning FedrosterError FeedbackError "
        "InfeasibleError InUseError InvalidInputError LogFileError MissingDataError MissingDependencyError "
        "PausedError PluginWarning RoundNotBegunError SelectionError StateFileError UnknownNameError "
        "WorkerLostError"
    ),
    "lab.federated": "federate",
    "selector.failures": "FailureRules",
    "rules.rules": "Group Rules",
    "policies": (
        "COCS CSUCB CUCB E3CS RBCSF CUCBPairs Dirichlet FedCS FedCSGreedy Floor LinUCB LinUCBPairs "
        "OmniscientP3 Oort Oracle OracleP PartialPooling PowerOfChoice RoundRobin SizeWeighted TiFL "
        "Uniform"
    ),
    "record": "Record",
    "selector": "Cohort EdgeCohort EdgeSelector Selector",
    "simulation": "load_checkpoint save_checkpoint simulate",
    "lab.compare.run": "compare simulate_many",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> object:
    """Load a name on first use."""
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
    return sorted({*globals(), *__all__})
