"""What networks refuse: every parameter has a bad value, and the message names it."""

import dataclasses

import pytest

from bad import check_refused, values_of
from fedroster.lab.worlds.network import TraceNetwork
from fedroster.networks.flat import FlatNetwork
from fedroster.networks.hidden_causes import HiddenCauses
from fedroster.networks.hierarchical import HierarchicalCifar10, HierarchicalNetwork
from fedroster.networks.patterns import PatternedNetwork
from fedroster.networks.volatile import VolatileNetwork

BAD = {
    FlatNetwork: """
        num_clients=0 cohort_size=0 train_time_s=(1.0,2.0)|()|(1.0,2.0,3.0,-1.0) cold_start_s=(1.0,)|(1.0,1.0,1.0,-0.5)
        snr=(1.0,1.0)|(1.0,1.0,1.0,0.0) log_base='10' compute_share_min=0.0|3.0 compute_share_max=0.25|nan|inf
        bandwidth_min_hz=0.0|5000000.0 bandwidth_max_hz=1000000.0|inf model_size_bit=-1.0 availability=-0.1|1.1
        noise=-0.1|1.5 dropout=-1.0|2.0 noise_shape=normal drift=-0.1|100.1 drift_rounds=0.5 churn=-0.1|1.0
        churn_rounds=0.5
    """,
    PatternedNetwork: "pattern=sinus|'' strength=-0.1|1.0|nan",
    VolatileNetwork: "presence_min=-0.1|0.95 presence_max=0.1|1.1 session_rounds=0.5 stay_s=0.0",
    HierarchicalNetwork: """
        num_clients=0 num_servers=0 num_features=0|2.5 deadline_s=0.0|nan budget=-1.0|nan update_size_bit=0.0
        workload_byte=-1.0 bandwidth_min_hz=0.0|2000000.0 bandwidth_max_hz=1.0 compute_min_hz=0.0 compute_max_hz=1.0
        price_min=-0.1 price_max=0.1 power_dbm=inf|5000.0 noise_dbm_hz=nan|-4000.0 shadowing_db=-1.0
        reach_km=0.0|1e200 geometry=flat mean_reach=0.0
        speed_m_s=-1.0 memory=1.1 rate_scale=0.0 static_resources=false dropout=1.1 min_updates=0
        global_period=0 edge_time_s=-1.0 cloud_time_s=-1.0
    """,
    HierarchicalCifar10: "deadline_s=0.0",  # other defaults are checked, too
    HiddenCauses: "cause=weather period=0 num_clients=0",
    TraceNetwork: """
        num_clients=0 cohort_size=0 traces=5 resample=1|False jitter_s=inf at_end=halt start_time_s=-1.0
        idle_step_s=0.0 round_interval_s=-1.0 deadline_s=-1.0|nan|inf samples=0|1.5 download_bit=-1.0 upload_bit=nan
        cold_start_s=-1.0 noise=1.1 dropout=-0.1
    """,
}


def own_parameters(kind):
    """The fields that a network does not share with the one that it inherits from."""
    inherited = [parent for parent in kind.__mro__[1:] if dataclasses.is_dataclass(parent)]
    return {field.name for field in dataclasses.fields(kind)} - {
        field.name for parent in inherited for field in dataclasses.fields(parent)
    }


@pytest.mark.parametrize("kind", BAD, ids=lambda kind: kind.__name__)
def test_bad_parameters_are_refused_by_name(kind):
    bad = values_of(BAD[kind])
    assert own_parameters(kind) <= bad.keys()  # every parameter has a bad value
    check_refused(kind, bad, shorter=("min_hz", "_min"))  # the upper end may be what is named
