"""Kernels that plain Python runs where there is little to do: the same numbers as compiled, and no compiler loaded."""

import subprocess
import sys

import numpy as np
import pytest

import costmodel
from costmodel.compilation import lazily
from costmodel.studies.parameter_servers import server_kernel


@pytest.mark.parametrize("network", ["vgg-16", "resnet-50"])
@pytest.mark.slow
def test_a_partition_is_the_same_whoever_works_it_out(network, monkeypatch):
    chain = costmodel.load_network(network).chain(costmodel.load_device("v100-sxm-16gb"), minibatch=64)
    found = []
    for little in (0, 10**9):
        monkeypatch.setattr(lazily, "LITTLE", little)
        found.append(costmodel.partition(chain, machines=[4], bandwidths=[1.25e9]))
    assert found[0] == found[1]


def test_workers_are_followed_as_compiled():
    durations = np.random.default_rng(0).exponential(1.0, (200, 4))

    def followed(run):
        out = np.zeros(5), np.zeros(128, np.int64), np.zeros(3, np.int64)
        run(durations, np.arange(5) / 10 + 0.1, 2, 1, 1, 20, *out)
        return [one.tolist() for one in out]

    assert followed(server_kernel.run.plain) == followed(server_kernel.run.compiled)
    next_one = lazily.LazyKernel(server_kernel.run.plain, lambda *_: 0.0)  # of a process that finds what this one has kept
    assert next_one._is_worth(2 * lazily.LITTLE_BESIDE_LOADING) and not next_one._is_worth(lazily.LITTLE_BESIDE_LOADING / 2)


def test_what_is_inside_of_a_kernel_is_done_as_that_is(monkeypatch):
    one = lazily.LazyKernel(lambda value: value + 1, None)
    outer = lazily.kernel_of(lambda value: value)(lambda value: one(value))
    monkeypatch.setattr(lazily.LazyKernel, "compiled", property(lambda kernel: lambda value: (kernel is outer, value)))
    assert outer(3) == 4 and outer(lazily.LITTLE + 1) == (True, lazily.LITTLE + 1)
    assert one(3) == (False, 3)


def test_little_work_loads_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("COSTMODEL_CACHE_DIR", str(tmp_path))  # where nothing is kept
    script = (
        "import sys, costmodel\n"
        "chain = costmodel.load_network('vgg-16').chain(costmodel.load_device('v100-sxm-16gb'), minibatch=64)\n"
        "costmodel.partition(chain, machines=[4, 4], bandwidths=[10e9, 1.25e9])\n"
        "costmodel.timeline('llama3-8b', '8xh100', pp=4, gbs=32)\n"
        "assert not {'numba', 'llvmlite'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
