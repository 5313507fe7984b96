"""fedroster decides which clients take part in each round of federated learning."""

from fedroster.core.errors import FedrosterError
from fedroster.policies import RBCSF, Dirichlet, FedCS, FedCSGreedy, OmniscientP3, Uniform

__version__ = "0.1.0"

__all__ = [
    "RBCSF",
    "Dirichlet",
    "FedCS",
    "FedCSGreedy",
    "FedrosterError",
    "OmniscientP3",
    "Uniform",
    "__version__",
]
