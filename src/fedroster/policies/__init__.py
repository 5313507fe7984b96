"""One file for each published algorithm."""

from fedroster.policies.cocs import COCS
from fedroster.policies.cucb import CUCB, CUCBPairs
from fedroster.policies.dirichlet import Dirichlet
from fedroster.policies.fedcs import FedCS, FedCSGreedy
from fedroster.policies.linucb import LinUCB, LinUCBPairs
from fedroster.policies.omniscient import OmniscientP3
from fedroster.policies.oracle import Oracle, OracleP
from fedroster.policies.random_links import RandomLinks
from fedroster.policies.rbcs_f import RBCSF
from fedroster.policies.uniform import Uniform

__all__ = [
    "COCS",
    "CUCB",
    "RBCSF",
    "CUCBPairs",
    "Dirichlet",
    "FedCS",
    "FedCSGreedy",
    "LinUCB",
    "LinUCBPairs",
    "OmniscientP3",
    "Oracle",
    "OracleP",
    "RandomLinks",
    "Uniform",
]
