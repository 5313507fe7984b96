"""Names of what can be made by name, with a line about each: listed and completed without loading anything."""

from __future__ import annotations

from collections.abc import Mapping

RBCS_F = "Huang et al., IEEE TPDS 2021, doi:10.1109/TPDS.2020.3040887"
COCS = "Qu et al., 2021, arXiv:2112.00925"
FEDSCALE = "Lai et al., ICML 2022, arXiv:2105.11367"
FEDCS = "Nishio and Yonetani, ICC 2019, doi:10.1109/ICC.2019.8761315"
OURS = "fedroster"

POLICIES: Mapping[str, tuple[str, str, str]] = {
    "rbcs-f": ("RBCSF", "Lyapunov queues and a contextual bandit: short rounds, guaranteed rates", RBCS_F),
    "floor": ("Floor", "every client's share at every moment: urgent clients first, the rest by price; no V", OURS),
    "random": ("Uniform", "uniform among the available clients, within budgets", "McMahan et al., AISTATS 2017"),
    "fedcs": ("FedCS", "all clients expected in time, as adapted by Huang et al. 2021; knows the true means", RBCS_F),
    "fedcs-greedy": (
        "FedCSGreedy",
        "greedy upload schedule within a deadline, as published; knows the true means",
        FEDCS,
    ),
    "dirichlet": ("Dirichlet", "fixed random probabilities, Dir(gamma_2), to study unfairness", RBCS_F),
    "p3": ("OmniscientP3", "RBCS-F's problem with the true means: regret is measured against it", RBCS_F),
    "cocs": ("COCS", "contextual bandit over client-server pairs: most updates in time for the budgets", COCS),
    "oracle": ("Oracle", "knows which updates will be in time", COCS),
    "oracle-p": ("OracleP", "knows the probability of every update to be in time", COCS),
    "cucb": ("CUCB", "UCB over a pool of whole decisions, as published", COCS),
    "linucb": ("LinUCB", "LinUCB over a pool of whole decisions, as published", COCS),
    "cucb-pairs": ("CUCBPairs", "UCB per client-server pair, the solver chooses", COCS),
    "linucb-pairs": ("LinUCBPairs", "LinUCB per client-server pair, the solver chooses", COCS),
    "partial-pooling": (
        "PartialPooling",
        "one curve over contexts, deviations where data shows them; rates with beta",
        OURS,
    ),
    "oort": ("Oort", "exploits great losses on fast clients, explores by speed, paced", "Lai et al., OSDI 2021"),
    "power-of-choice": (
        "PowerOfChoice",
        "of d random candidates those of greatest last known loss (rpow-d)",
        "arXiv:2010.01243",
    ),
    "tifl": (
        "TiFL",
        "cohorts from one tier of equally fast clients",
        "Chai et al., HPDC 2020, doi:10.1145/3369583.3392686",
    ),
    "e3cs": (
        "E3CS",
        "exponential weights for clients that answer in time, with a fairness quota",
        "Huang et al., IEEE IoT Journal 2022, doi:10.1109/JIOT.2022.3172113",
    ),
    "cs-ucb": (
        "CSUCB",
        "UCB on times, with fairness queues",
        "Xia et al., IEEE TWC 2020, doi:10.1109/TWC.2020.3008091",
    ),
    "round-robin": ("RoundRobin", "clients chosen longest ago first", "Yang et al., IEEE TCOM 2020, arXiv:1908.06287"),
    "size-weighted": (
        "SizeWeighted",
        "with probabilities proportional to the clients' samples",
        "Li et al., ICLR 2020",
    ),
}
"""By name: the class in :mod:`fedroster.policies`, what it does, and where it is published."""

SCENARIOS: Mapping[str, tuple[str, str]] = {
    "rbcs-f/table-1": ("40 clients of four classes, one server, linear exchange times", RBCS_F),
    "rbcs-f/volatile": ("the same, and clients vanish and return at random, between rounds and in them", OURS),
    "cocs/mnist": ("50 clients, 3 edge servers, a small model, every pair in reach", COCS),
    "cocs/cifar-10": ("the same with a large model", COCS),
    "cocs/mnist-geometric": ("moving clients, coverage that changes, a small model", COCS),
    "cocs/cifar-10-geometric": ("the same with a large model", COCS),
    "hidden/mnist": ("cocs/mnist with failures that no context explains", OURS),
    "traces/devices": ("up to a million devices that come and go, on a virtual clock; real traces if given", FEDSCALE),
}
"""By name: what it is, and where it is published."""

TASKS: Mapping[str, tuple[str, str]] = {
    "digits": ("handwritten digits of 8 x 8, a small network; ships with scikit-learn", OURS),
    "digits-logistic": ("the same digits, logistic regression: without PyTorch", OURS),
    "fashion-mnist": ("Fashion-MNIST, a convolutional network, 500 samples a client", RBCS_F),
    "cifar-10": ("CIFAR-10, a convolutional network, 500 samples a client", RBCS_F),
    "mnist-logistic": ("MNIST, logistic regression, 1,000 samples a client", COCS),
    "cifar-10-b": ("CIFAR-10, a convolutional network, 1,000 samples a client", COCS),
    "cifar-10-small": ("CIFAR-10, a small network for the processor", OURS),
    "cifar-10-b-small": ("the same with 2 local epochs", OURS),
}
"""By name: data and model, and whose experiment it is."""

DATASETS: Mapping[str, tuple[str, str]] = {
    "mnist": ("MNIST: 60,000 samples, 10,000 for tests", "fedroster data fetch"),
    "fashion-mnist": ("Fashion-MNIST: 60,000 samples, 10,000 for tests", "fedroster data fetch"),
    "cifar-10": ("CIFAR-10: 50,000 samples, 10,000 for tests", "fedroster data fetch"),
    "digits": ("Digits: 1,438 samples, 359 for tests", "fedroster data fetch"),
}
"""By name: the size, and the command that brings it."""
