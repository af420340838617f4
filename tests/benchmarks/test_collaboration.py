"""How fast a collaboration is assigned: `pytest tests/benchmarks --benchmark-only`. Nothing here fails for being slow."""

import numpy as np
import pytest

from costmodel.studies.collaboration import solver as solver
from costmodel.studies.collaboration.peers import Peer
from costmodel.studies.collaboration.study import collaborate

pytest.importorskip("pytest_benchmark")

PARAMETERS = 72e6


def peers(count):
    random = np.random.default_rng(0)
    speed, upload, download = random.lognormal(0.0, 1.0, (3, count))
    clients = random.random(count) < 0.3
    return [
        Peer(name=f"peer {i}", samples_per_second=float(speed[i]), upload=float(upload[i]) * PARAMETERS,
             download=float(download[i]) * PARAMETERS, client=bool(clients[i]))
        for i in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("count", [100, 1000])
@pytest.mark.parametrize("delayed", [False, True])
def test_collaborate(benchmark, count, delayed):
    """From peers to whole elements: who computes, and HiGHS for who averages."""
    asked = peers(count)
    result = benchmark(collaborate, asked, PARAMETERS, 4096.0, delayed=delayed)
    assert result.step_time > 0.0


def test_program(benchmark):
    """HiGHS alone, 1,000 peers that all compute."""
    asked = peers(1000)
    way = np.array([[one.upload, one.download] for one in asked]).T / PARAMETERS
    averages = np.array([not one.client for one in asked])
    benchmark(solver.averaging, *way, np.ones(1000, bool), averages)


def test_all_flows(benchmark):
    """The program with a variable for every flow, 24 peers."""
    asked = peers(24)
    way = np.array([[one.upload, one.download] for one in asked]).T / PARAMETERS
    averages = np.array([not one.client for one in asked])
    benchmark(solver.averaging_by_flows, *way, np.full((24, 24), np.inf), np.ones(24, bool), averages)
