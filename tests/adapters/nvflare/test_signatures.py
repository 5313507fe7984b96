"""Policies that compare updates get signatures of the results that can be used: each minus what its site was sent."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs NVFlare: run .ci/nvflare, or install the extra 'nvflare'")

from fake_flare import job, model, run
from nvflare.app_common.abstract.fl_model import ParamsType
from test_collaboration import clients_of
from test_weighed import Moving, Unchecked, Weighing

from fedroster import Selector
from fedroster.aggregation.signatures import signatures_of
from fedroster.core.errors import ConfigurationError
from fedroster.policies import DivFL, HiCSFL
from fedroster.types import Signature


class Broken(Moving):
    def train(self, model, number=0):
        result = super().train(model, number)
        result.params["w"] = np.full((3, 2), np.nan)
        return result


class Comparing(Weighing):
    def make_selector(self):
        return Selector(DivFL(), cohort_size=4, seed=3)


@pytest.mark.parametrize("kind", [ParamsType.FULL, ParamsType.DIFF])
def test_a_signature_is_of_the_update_and_a_refused_result_has_none(kind, told):
    sites = {f"site-{number}": Moving(number, kind) for number in range(3)} | {"site-3": Broken(3, kind)}
    _, engine = run(Comparing, sites, size=4, rounds=3, at=3.0)
    assert not engine.panics
    assert len(told) == 3
    zero = model()
    for each in told:  # the model moves between the rounds, and updates are the same
        assert set(each) == {"site-0", "site-1", "site-2"}
        for number in range(3):
            moved = {name: (array + 1.0 + number)[None] for name, array in zero.items()}
            expected = signatures_of(moved, zero, Signature(), seed=3)[0]
            np.testing.assert_allclose(each[f"site-{number}"], expected, atol=1e-9)


def test_a_model_without_the_bias_that_a_policy_wants_ends_the_run_with_the_reason():
    class Balancing(Weighing):
        classes = 2

        def make_selector(self):
            return Selector(HiCSFL(classes=self.classes), cohort_size=4)

    class Lacking(Balancing):
        classes = 7

    sites = {f"site-{number}": Moving(number, ParamsType.FULL) for number in range(4)}
    assert not run(Balancing, sites, size=4, rounds=2, at=3.0)[1].panics
    sites = {f"site-{number}": Moving(number, ParamsType.FULL) for number in range(4)}
    _, engine = run(Lacking, sites, size=4, rounds=2, at=3.0)
    assert "expected 7 classes in the last of one dimension" in str(engine.panics)


@pytest.mark.parametrize("options", [{"enable_tensor_disk_offload": True}, {}])
def test_where_results_are_not_read_and_in_the_own_loop_such_a_policy_is_refused(options):
    class Blind(Comparing if options else Unchecked):
        make_selector = Comparing.make_selector

    with pytest.raises(ConfigurationError, match="learns from signatures of updates, and this engine, as it is set up"):
        Blind(num_clients=4, persistor_id="", **options).start_controller(None)
    with job({"a": Moving(0, ParamsType.FULL)}), pytest.raises(ConfigurationError, match="learns from signatures"):
        clients_of(m=1, policy=DivFL(), weighs=True)
