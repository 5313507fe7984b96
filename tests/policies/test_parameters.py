"""Every parameter of every policy is refused where it is out of its range, by its name."""

import dataclasses

import pytest

from bad import check_refused, values_of
from fedroster import policies
from fedroster.core.errors import ConfigurationError
from fedroster.core.problem import ProblemSpec
from fedroster.core.protocols import ForOneServer

KINDS = [getattr(policies, name) for name in policies.__all__]
P2 = "gap=1.0|-0.1 node_limit=-1"
SOLVER = P2 + " solver=quick utility=cubic epsilon=0.0"
BAD = {
    "BySpeed": "exponent=-0.5|inf least=-0.1|1.1 longest_gap=0.5|nan memory=0.5|inf",
    "AFL": "alpha_1=1.1|nan alpha_2=-1.0|10000000.0 alpha_3=-0.1",
    "COCS": SOLVER + " h_T=-1|2.5 horizon=0 holder=0.0 z=1.0|-0.1 scale=-1.0|nan low=(0.0,) high=(1.0,)",
    "CSUCB": "balance=-0.5 fairness=-0.5 longest_s=-0.5 queues=false",
    "CUCB": "pool_size=0 width=-1.0|nan",
    "CUCBPairs": P2 + " width=-1.0",
    "ClusteredSampling": "scheme=poisson",
    "Dirichlet": "gamma_2=0.0|-1.0|inf",
    "DivFL": "greedy=eager epsilon=0.0|1.0 weighing=gamma",
    "E3CS": "fairness=1.1 eta=0.0|1e+16 schedule=step horizon=0",
    "F3AST": "beta=0.0|1.0|nan",
    "FedCS": "deadline_s=0.0|nan|inf",
    "FedCor": "warm_up=0 interval=1 discount=0.0|1.1 gamma=0.0 noise=0.0|nan",
    "FedCSGreedy": "deadline_s=-1.0 fraction=0.0|1.1 distribution_s=-0.1 overhead_s=nan",
    "Floor": "beta=-0.1|1.1|nan|'0.1' slack=-1|1.0|True share_of=all|None absence=-1|2.5 memory=0.5|inf|nan",
    "HiCSFL": "classes=0 horizon=0 gamma=-1.0 temperature=0.0 balance_weight=-1.0",
    "LinUCB": "pool_size=0 alpha=-1.0 ridge=0.0",
    "LinUCBPairs": P2 + " alpha=-1.0 ridge=0.0",
    "OmniscientP3": "V=-1.0 beta=2.0",
    "Oort": """
        exploration=1.5 exploration_decay=0.0 exploration_min=1.5 pacer_step=0 pacer_delta=0.0 percentile=0.0
        penalty=-1.0 clip=1.5 cut_off=nan sample_window=0.5 max_participations=-1 max_left_out=1.5
        slowness_feature=-2
    """,
    "OptimalClientSampling": "candidates=-1|2.5 variant=approximate",
    "Oracle": SOLVER,
    "OracleP": SOLVER,
    "PartialPooling": P2 + " beta=1.5 V=-1.0 variances=(0.0,)|() memories=(-1.0,)|() intervals=-1|65 share=1.0",
    "ParticipationWeights": "longest_gap=0|1.5",
    "Pisces": "exploration=1.5 exploration_decay=0.0 exploration_min=-0.1 penalty=-1.0|11.0",
    "PowerOfChoice": "d=-1 variant=cpow-d",
    "RBCSF": """
        V=-1.0 beta=-0.1|1.5 alpha=-0.1 ridge=0.0 schedule=lemma1|lemma-1 R=-1.0 L=inf S=-0.5 delta=0.0|1.0
    """,
    "REFL": "period=0 rest=-1|2.5",
    "SizeWeighted": "size_feature=-2",
    "TiFL": """
        tiers=0 profile_rounds=0 probabilities=(1.0,)|(0.0,0.0,0.0,0.0,0.0)|(1.0,-1.0,0.0,0.0,0.0)
        credits=(1,-2,0,0,0)|(1,) adaptive=no interval=0
    """,
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_bad_parameters_are_refused_by_name(kind):
    bad = values_of(BAD.get(kind.__name__, ""))
    names = {field.name for field in dataclasses.fields(kind)} - {"policy"}  # what is inside has a test of its own
    assert set(bad) == names  # every parameter has a bad value
    check_refused(kind, bad)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if issubclass(kind, ForOneServer)], ids=lambda kind: kind.__name__
)
def test_policies_for_one_server_refuse_two(kind):
    """With several, a client's links are several rows, and these would choose it twice."""
    with pytest.raises(ConfigurationError, match=f"{kind.__name__} selects for one server; this federation has 2"):
        kind().check(ProblemSpec(40, 8, 3, num_servers=2))


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [("Oort", "slowness_feature", "0 to 2"), ("SizeWeighted", "size_feature", "0 to 2, or -1")],
)
def test_a_column_that_contexts_do_not_have(kind, name, expected):
    with pytest.raises(ConfigurationError, match=f"{name} is 3; expected a column of the context, {expected}"):
        getattr(policies, kind)(**{name: 3}).check(ProblemSpec(4, 2, 3))
