"""The example in FLARE's simulator, in small: both ways into FLARE with FLARE's own processes and messages."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs NVFlare: run .ci/nvflare, or install the extra 'nvflare'")
pytest.importorskip("sklearn", reason="the example needs scikit-learn")

from fedroster import RBCSF
from fedroster.record import verify

EXAMPLE = Path(__file__).parents[3] / "examples" / "nvflare"
if not EXAMPLE.is_dir():
    pytest.skip("the example is not part of this distribution", allow_module_level=True)

signal.signal(signal.SIGTERM, signal.default_int_handler)  # at the time limit, end the processes that were started

COLLAB = """
from nvflare.recipe import SimEnv
import run
out = run.Path(r"{out}")
run.make_recipe(out, 5, 0.1).execute(SimEnv(num_clients=6, num_threads=6, workspace_root=str(out / "workspace")))
print(run.table(out))
"""
CONTROLLER = """
import run
print(run.simulate("FairFedAvg", run.Path(r"{out}"), 3, 0.1))
"""


def play(script: str, out: Path) -> str:
    command = [sys.executable, "-c", script.format(out=out)]
    done = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_collab_job_of_which_one_site_raises(tmp_path):
    said = play(COLLAB, tmp_path)
    assert "logs and counters agree in every round" in said
    assert "5 rounds, 0 of them resumed" in said
    record = verify(tmp_path / "record", RBCSF(V=0.1, beta=0.1))
    assert (record.is_whole, record.num_rounds, record.num_decided) == (True, 5, 5)


def test_an_existing_job_with_flares_own_fedavg(tmp_path):
    said = play(CONTROLLER, tmp_path)
    assert "'rounds': 3" in said
    assert '"clients": []' in (tmp_path / "FairFedAvg.jsonl").read_text()
