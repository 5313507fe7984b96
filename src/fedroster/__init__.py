"""fedroster decides which clients take part in each round of federated learning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedroster.core.errors import FedrosterError

if TYPE_CHECKING:
    from fedroster.policies import RBCSF, Dirichlet, FedCS, FedCSGreedy, OmniscientP3, Uniform
    from fedroster.selector import Cohort, EdgeCohort, EdgeSelector, Selector

__version__ = "0.1.0"

__all__ = [
    "RBCSF",
    "Cohort",
    "Dirichlet",
    "EdgeCohort",
    "EdgeSelector",
    "FedCS",
    "FedCSGreedy",
    "FedrosterError",
    "OmniscientP3",
    "Selector",
    "Uniform",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Load a name on first use: a node that only reports its context starts without compilers and solvers."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = (
        "fedroster.selector" if name in ("Cohort", "EdgeCohort", "EdgeSelector", "Selector") else "fedroster.policies"
    )
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
