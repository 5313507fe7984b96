"""fedroster decides which clients take part in each round of federated learning.

Every name is loaded on first use, so that a node that only reports its context starts without compilers and solvers.
"""

from importlib import import_module

from fedroster.version import __version__

TYPE_CHECKING = False  # to type checkers it is true; `typing` takes longer to load than all of this

if TYPE_CHECKING:
    from fedroster.catalogue import make_policy, make_scenario
    from fedroster.core.errors import (
        ConfigurationError,
        DataFileError,
        DownloadError,
        FairnessWarning,
        FedrosterError,
        FeedbackError,
        InfeasibleError,
        InUseError,
        InvalidInputError,
        LogFileError,
        MissingDataError,
        MissingDependencyError,
        PausedError,
        PluginWarning,
        RoundNotBegunError,
        SelectionError,
        StateFileError,
        UnknownNameError,
        WorkerLostError,
    )
    from fedroster.edge_selector import EdgeSelector
    from fedroster.federated import federate
    from fedroster.federation.failures import FailureRules
    from fedroster.federation.rules import Group, Rules
    from fedroster.policies import (
        COCS,
        CSUCB,
        CUCB,
        E3CS,
        RBCSF,
        CUCBPairs,
        Dirichlet,
        Explored,
        FedCS,
        FedCSGreedy,
        Floor,
        LinUCB,
        LinUCBPairs,
        OmniscientP3,
        Oort,
        Oracle,
        OracleP,
        PartialPooling,
        PowerOfChoice,
        RoundRobin,
        SizeWeighted,
        Steered,
        TiFL,
        Uniform,
    )
    from fedroster.record import Record
    from fedroster.selector import Cohort, EdgeCohort, Selector
    from fedroster.simulation import load_checkpoint, save_checkpoint, simulate
    from fedroster.study.compare.run import compare, simulate_many


__all__ = [
    "COCS",
    "CSUCB",
    "CUCB",
    "E3CS",
    "RBCSF",
    "CUCBPairs",
    "Cohort",
    "ConfigurationError",
    "DataFileError",
    "Dirichlet",
    "DownloadError",
    "EdgeCohort",
    "EdgeSelector",
    "Explored",
    "FailureRules",
    "FairnessWarning",
    "FedCS",
    "FedCSGreedy",
    "FedrosterError",
    "FeedbackError",
    "Floor",
    "Group",
    "InUseError",
    "InfeasibleError",
    "InvalidInputError",
    "LinUCB",
    "LinUCBPairs",
    "LogFileError",
    "MissingDataError",
    "MissingDependencyError",
    "OmniscientP3",
    "Oort",
    "Oracle",
    "OracleP",
    "PartialPooling",
    "PausedError",
    "PluginWarning",
    "PowerOfChoice",
    "Record",
    "RoundNotBegunError",
    "RoundRobin",
    "Rules",
    "SelectionError",
    "Selector",
    "SizeWeighted",
    "StateFileError",
    "Steered",
    "TiFL",
    "Uniform",
    "UnknownNameError",
    "WorkerLostError",
    "__version__",
    "compare",
    "federate",
    "load_checkpoint",
    "make_policy",
    "make_scenario",
    "save_checkpoint",
    "simulate",
    "simulate_many",
]

_HOMES = {
    "Cohort": "selector",
    "EdgeCohort": "selector",
    "EdgeSelector": "edge_selector",
    "FailureRules": "federation.failures",
    "Record": "record",
    "Group": "federation.rules",
    "Rules": "federation.rules",
    "Selector": "selector",
    "compare": "study.compare.run",
    "federate": "federated",
    "load_checkpoint": "simulation",
    "make_policy": "catalogue",
    "make_scenario": "catalogue",
    "save_checkpoint": "simulation",
    "simulate": "simulation",
    "simulate_many": "study.compare.run",
}


def __getattr__(name: str) -> object:
    """Load a name on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name) or ("core.errors" if name.endswith(("Error", "Warning")) else "policies")
    try:
        value: object = getattr(import_module(f"fedroster.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or not home.startswith("study"):
            raise
        from fedroster.core.errors import MissingDependencyError

        raise MissingDependencyError.of(error.name, "study") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
