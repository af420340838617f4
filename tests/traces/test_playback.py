"""A traced step on the whole cluster: the same as its price where all ranks are alike, later where one is slow."""

import pytest

from costmodel import load_cluster
from costmodel.text.errors import InvalidValue
from costmodel.text.units import MiB
from costmodel.traces.builder import RoleBuilder
from costmodel.traces.playback import play_cluster
from costmodel.traces.pricing import price_trace
from costmodel.traces.record import Trace
from tests.traces.test_pricing import a_step, pipeline

NODE, CLUSTER = load_cluster("dgx-h100", gpus=8), load_cluster("dgx-h100", gpus=64)


def test_a_step_of_ranks_that_are_alike_takes_what_its_price_says():
    for trace in (a_step([8192, 8192], [64 * MiB, 64 * MiB]), a_step([4096] * 5, [16 * MiB] * 5), a_step([4096] * 3), pipeline()):
        priced = price_trace(trace, NODE)
        assert play_cluster(trace, NODE).total == pytest.approx(priced.step_time, rel=0.05)


def test_links_carry_what_their_transactions_send():
    trace = a_step([8192, 8192], [64 * MiB, 64 * MiB], group=range(64), cluster_ranks=64)
    made = play_cluster(trace, CLUSTER)
    loads = {one.level: one for one in made.loads}
    sent = made.estimate.transactions[0].sent
    node, outer = list(loads.values())[:2]
    per_step = float(sent[:2].sum())
    assert per_step == pytest.approx(2 * 2 * 64 * MiB * 63 / 64)
    # a ring of a node's eight members has one edge of eight that leaves it
    assert node.nbytes == pytest.approx(per_step * 7 / 8) and outer.nbytes == pytest.approx(per_step / 8)
    assert 0.0 < node.busy < 1.0 and node.peak_rate <= node.bandwidth * 1.01
    assert len(made.frame()) == 2 and "link" in repr(made)


def test_one_slow_rank_delays_its_group_and_no_other():
    builder = RoleBuilder(0, range(64))
    group, channel = builder.group(range(8)), builder.stream("nccl")
    for _ in range(2):
        builder.kernel("aten.mm", [(8192, 8192)] * 2, ["bfloat16"] * 2, flop=2 * 8192**3, phase="backward")
        builder.stream_wait(builder.transaction("all-reduce", MiB, "bfloat16", group, stream=channel))
        builder.step_boundary()
    trace = Trace(roles=(builder.role(),), world_size=64)
    alike, slow = play_cluster(trace, CLUSTER), play_cluster(trace, CLUSTER, slow_ranks={13: 2.0})
    work = alike.estimate.kernels[0][0]
    assert len(alike.finished) == 1 and len(slow.finished) == 64
    for rank, end in slow.finished.items():
        assert end == pytest.approx(alike.total + (work if 8 <= rank < 16 else 0.0), rel=1e-6)
    assert slow.waiting[12] == pytest.approx(slow.waiting[13] + work, rel=1e-6)
    jittered = play_cluster(trace, CLUSTER, jitter=0.1)
    assert alike.total < jittered.total < 1.5 * alike.total
    assert jittered.total == play_cluster(trace, CLUSTER, jitter=0.1).total


def test_a_message_that_nobody_sends_is_refused_with_where_to_look():
    builders = [RoleBuilder(0), RoleBuilder(1)]
    builders[1].stream_wait(builders[1].transaction("recv", MiB, "bfloat16", peer=0, stream=builders[1].stream("p2p")))
    builders[0].kernel("aten.add")
    trace = Trace(roles=tuple(builder.role() for builder in builders), world_size=2)
    with pytest.raises(InvalidValue, match="faults_of"):
        play_cluster(trace, NODE)
