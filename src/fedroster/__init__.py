"""fedroster decides which clients take part in each round of federated learning."""

from fedroster.core.errors import FedrosterError
from fedroster.policies import RBCSF, Dirichlet, FedCS, FedCSGreedy, OmniscientP3, Uniform
from fedroster.selector import Cohort, Selector

__version__ = "0.1.0"

__all__ = [
    "RBCSF",
    "Cohort",
    "Dirichlet",
    "FedCS",
    "FedCSGreedy",
    "FedrosterError",
    "OmniscientP3",
    "Selector",
    "Uniform",
    "__version__",
]
