"""One file for each published algorithm."""

from fedroster.policies.dirichlet import Dirichlet
from fedroster.policies.fedcs import FedCS, FedCSGreedy
from fedroster.policies.omniscient import OmniscientP3
from fedroster.policies.rbcs_f import RBCSF
from fedroster.policies.uniform import Uniform

__all__ = ["RBCSF", "Dirichlet", "FedCS", "FedCSGreedy", "OmniscientP3", "Uniform"]
