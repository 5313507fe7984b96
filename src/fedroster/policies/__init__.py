"""One file for each published algorithm."""

from fedroster.policies.afl import AFL
from fedroster.policies.by_speed import BySpeed
from fedroster.policies.clustered_sampling import ClusteredSampling
from fedroster.policies.cocs import COCS
from fedroster.policies.cs_ucb import CSUCB
from fedroster.policies.cucb import CUCB, CUCBPairs
from fedroster.policies.dirichlet import Dirichlet
from fedroster.policies.divfl import DivFL
from fedroster.policies.e3cs import E3CS
from fedroster.policies.f3ast import F3AST
from fedroster.policies.fedcor import FedCor
from fedroster.policies.fedcs import FedCS, FedCSGreedy
from fedroster.policies.floor import Floor
from fedroster.policies.hics_fl import HiCSFL
from fedroster.policies.linucb import LinUCB, LinUCBPairs
from fedroster.policies.omniscient import OmniscientP3
from fedroster.policies.oort import Oort
from fedroster.policies.optimal_client_sampling import OptimalClientSampling
from fedroster.policies.oracle import Oracle, OracleP
from fedroster.policies.partial_pooling import PartialPooling
from fedroster.policies.participation_weights import ParticipationWeights
from fedroster.policies.pisces import Pisces
from fedroster.policies.power_of_choice import PowerOfChoice
from fedroster.policies.rbcs_f import RBCSF
from fedroster.policies.refl import REFL
from fedroster.policies.round_robin import RoundRobin
from fedroster.policies.size_weighted import SizeWeighted
from fedroster.policies.tifl import TiFL
from fedroster.policies.uniform import Uniform

__all__ = [
    "AFL",
    "COCS",
    "CSUCB",
    "CUCB",
    "E3CS",
    "F3AST",
    "RBCSF",
    "REFL",
    "BySpeed",
    "CUCBPairs",
    "ClusteredSampling",
    "Dirichlet",
    "DivFL",
    "FedCS",
    "FedCSGreedy",
    "FedCor",
    "Floor",
    "HiCSFL",
    "LinUCB",
    "LinUCBPairs",
    "OmniscientP3",
    "Oort",
    "OptimalClientSampling",
    "Oracle",
    "OracleP",
    "PartialPooling",
    "ParticipationWeights",
    "Pisces",
    "PowerOfChoice",
    "RoundRobin",
    "SizeWeighted",
    "TiFL",
    "Uniform",
]
