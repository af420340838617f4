"""Benchmarks run where they are asked for."""

import pytest


@pytest.fixture(autouse=True)
def only_when_asked(request):
    if not (request.config.getoption("benchmark_only") or request.config.getoption("benchmark_enable")):
        pytest.skip("run with --benchmark-only")
