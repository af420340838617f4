"""What a software stack adds to a step: jitter, slow shards; and what the communication library holds."""

import dataclasses

import pytest

from costmodel import Plan, estimate, load_cluster, load_framework, load_model
from costmodel.arithmetic.named_tuples import replaced
from costmodel.evaluation.collectives import nccl_solver as nccl
from costmodel.formulas.network.communication import layer_exchange
from costmodel.formulas.training_step import layer_pass
from costmodel.formulas.transformer import memory

MODEL = load_model("llama3-8b")
CLUSTER = load_cluster("dgx-h100", gpus=512)


def step(plan, **constants):
    return software_step("megatron-core", plan, **constants)


def software_step(name, plan, **constants):
    software = load_framework(name)
    quiet = {"host_pipeline_jitter": 0.0, "network_sharding_quality": 1.0, **constants}
    changed = replaced(software.constants, quiet)
    return estimate(MODEL, CLUSTER.with_gpus(plan.gpus), plan, dataclasses.replace(software, constants=changed))


def plan_of(tensor=1, pipeline=1, data=None, **fields):
    data = data or CLUSTER.gpus // (tensor * pipeline)
    return Plan(global_batch=2048, seq_len=4096, tensor_parallel=tensor, pipeline_parallel=pipeline, data_parallel=data, **fields)


@pytest.mark.parametrize(("tensor", "pipeline", "more"), [(8, 1, False), (1, 4, False), (8, 4, True)])
def test_jitter_of_a_pipeline_costs_tensor_groups_in_pipelines_alone(tensor, pipeline, more):
    plan = plan_of(tensor, pipeline)
    plain, jittery = step(plan, host_jitter=0.0), step(plan, host_jitter=0.0, host_pipeline_jitter=30.0)
    assert (jittery.step_time > 1.01 * plain.step_time) is more
    if more:
        # seven further ranks are three doublings
        assert jittery.step_time == pytest.approx(step(plan, host_jitter=70.0).step_time)


@pytest.mark.parametrize(("data", "more"), [(1, False), (2, True)])  # four stages of two ranks fill a node, or two
def test_a_pipeline_inside_a_node_has_no_jitter_of_its_own(data, more):
    plan = plan_of(2, 4, data, micro_batch=1)
    assert (step(plan, host_pipeline_jitter=30.0).step_time > step(plan).step_time) is more


@pytest.mark.parametrize(("tensor", "sequence", "calls"), [(1, False, 0), (4, False, 2), (4, True, 4)])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_host_launches_the_tensor_groups_collectives(tensor, sequence, calls, recompute):  # shoeybi2019, korthikanti2022
    software, network, device = load_framework("megatron-core"), CLUSTER.numbers(), CLUSTER.device.numbers("bf16")
    plan = plan_of(tensor, sequence_parallel=sequence, recompute=recompute)
    arguments = MODEL.numbers(), plan.settings(software), plan.numbers(software, MODEL.layers), network
    took = []
    for launch in (1e-4, 3e-4):  # beside a host so slow that the device always waits
        stack = replaced(
            software.numbers(),
            {"host_forward": 10.0, "host_backward": 10.0, "host_collective_call": launch, "host_jitter": 0.0},
        )
        one = layer_pass(*arguments, stack, device)
        took.append(one.total)
    passes = 3 if recompute == "full" else 2
    assert took[1] - took[0] == pytest.approx(passes * calls * 2e-4, rel=1e-6, abs=1e-12)


def test_a_slower_processor_takes_everything_that_the_host_does_as_much_longer():
    plan = plan_of(4, 4)
    times = ["forward", "backward", "collective_call", "micro_batch", "step", "layer_update", "pipeline_call"]
    slow = {f"host_{name}": 2.0 * float(getattr(load_framework("megatron-core").constants.host, name)) for name in times}
    one = {"host_pressure_time": 0.0}
    assert step(plan, **one, host_pace=2.0).step_time == pytest.approx(step(plan, **one, **slow).step_time, rel=1e-12)


@pytest.mark.parametrize(("pipeline", "virtual", "calls"), [(1, 1, 0), (4, 1, 2), (4, 4, 8)])
def test_a_chunk_calls_its_neighbours_twice_a_micro_batch(pipeline, virtual, calls):
    plan = plan_of(1, pipeline, virtual_stages=virtual)
    less, more = (step(plan, host_pipeline_call=call).step.host for call in (0.0, 1e-3))
    assert more - less == pytest.approx(plan.micro_batches * calls * 1e-3, rel=1e-9, abs=1e-12)


def test_a_valley_calls_the_neighbours_of_both_its_stages():
    """Each micro-batch passes a rank of ZB-V on its way down and on its way up."""
    calls = {}
    for schedule in ("1f1b", "zb-v"):
        plan = plan_of(1, 4, schedule=schedule)
        less, more = (software_step("fsdp2", plan, host_pipeline_call=call).step.host for call in (0.0, 1e-3))
        calls[schedule] = (more - less) / plan.micro_batches / 1e-3
    assert calls == {"1f1b": pytest.approx(2.0, rel=1e-6), "zb-v": pytest.approx(4.0, rel=1e-6)}


@pytest.mark.parametrize(("recompute", "passes"), [("none", 2), ("full", 3)])
def test_every_pass_through_a_module_meets_its_hooks_once(recompute, passes):
    """Gathered before it and released after it, backward too (deepspeedai/DeepSpeed@edaa722 deepspeed/runtime/zero/
    parameter_offload.py, ``_register_hooks_recursively``): seven projections, two norms, four modules without weights."""
    software, network, device = load_framework("deepspeed"), CLUSTER.numbers(), CLUSTER.device.numbers("bf16")
    plan = plan_of(data=512, zero_stage=3, recompute=recompute)
    took = []
    for hooks in (True, False):
        framework = dataclasses.replace(software, module_hooks=hooks)
        arguments = MODEL.numbers(), plan.settings(framework), plan.numbers(framework, MODEL.layers), network
        slow = replaced(framework.numbers(), {"host_forward": 10.0, "host_backward": 10.0})
        took.append(layer_pass(*arguments, slow, device).total)
    assert took[0] - took[1] == pytest.approx(passes * 13 * software.constants.host.module_hook, rel=1e-6)


def test_the_host_launches_the_update_of_every_layer_while_the_device_makes_it():
    plan = plan_of(1, 4)
    quick, slow = (float(step(plan, host_layer_update=time).step.optimizer) for time in (0.0, 0.1))
    assert 0.0 < quick < 0.1
    assert slow == pytest.approx(0.1 * MODEL.layers / 4)


def test_shards_at_half_the_speed_take_twice_the_time_to_gather_and_scatter():
    exposed = dict(overlap_gradients=False, overlap_parameters=False)
    for stage, slower in ((0, 1.0), (1, 2.0)):
        plan = plan_of(data=512, zero_stage=stage, **exposed)
        one, other = step(plan).step, step(plan, network_sharding_quality=0.5).step
        assert other.gradient_exchange == pytest.approx(slower * one.gradient_exchange, rel=1e-6)
        assert other.parameter_exchange == pytest.approx(slower * one.parameter_exchange, rel=1e-6)


def test_latency_inside_a_node_is_that_of_tensor_groups_in_it_and_between_nodes_of_those_across():
    plan = plan_of(8)
    software, network = load_framework("megatron-core"), CLUSTER.numbers()
    settings, stack = plan.settings(software), software.numbers()
    slow_inside, slow_between = replaced(stack, {"network_node_latency": 50.0}), replaced(stack, {"network_latency": 50.0})
    for tensor, changed in ((8, slow_inside), (16, slow_between)):
        degrees = plan_of(tensor).numbers(software, MODEL.layers)
        plain = layer_exchange(MODEL.numbers(), settings, degrees, network, stack).tensor_forward
        assert layer_exchange(MODEL.numbers(), settings, degrees, network, changed).tensor_forward > 1.1 * plain
    inside = plan_of(8).numbers(software, MODEL.layers)
    plain = layer_exchange(MODEL.numbers(), settings, inside, network, stack).tensor_forward
    assert layer_exchange(MODEL.numbers(), settings, inside, network, slow_between).tensor_forward == plain


@pytest.mark.parametrize(
    ("name", "links", "speed"),
    [("dgx-1v-32gb", 6, 20e9), ("dgx-a100", 12, 20e9), ("dgx-h100", 18, 20.6e9), ("dgx-b200", 18, 40.1e9)],
)
def test_channels_are_twice_those_of_nccls_graph(name, links, speed):
    cluster = load_cluster(name, gpus=8)
    kind = cluster.device.architecture
    alone = nccl.Communicator(ranks=8, nodes=1, architecture=kind, link=links * speed, pci=0.0, nic=0.0)
    assert cluster.numbers().node.channels == 2 * nccl.ring_graph(alone).channels


def test_the_pool_of_messages_is_what_nccl_allocates():  # NVIDIA/nccl#2363: 64 channels on one node
    network = CLUSTER.numbers()
    network = network._replace(node=network.node._replace(channels=64.0))
    assert memory.message_buffers(8.0, 1.0, network) == 536_870_912
    assert memory.message_buffers(8.0, 8.0, network) == 536_870_912 / 4


def test_the_library_holds_a_ring_inside_a_node_and_a_tree_besides_between_nodes():  # 9,633,792 B a connection
    network = CLUSTER.numbers()
    assert memory.collective_buffers(8.0, 1.0, network) == 24 * 9_633_792
    assert memory.collective_buffers(16.0, 1.0, network) == 3 * 24 * 9_633_792
    assert memory.collective_buffers(1.0, 1.0, network) == 0.0


def test_what_the_library_holds_is_in_the_bill():
    software = load_framework("megatron-core")
    plan = plan_of(8, 4)
    held = memory.library_bytes(plan.numbers(software, MODEL.layers), CLUSTER.numbers())
    without = step(plan, memory_library_overhead=0.0).memory
    assert step(plan, memory_library_overhead=2.0).memory.overhead - without.overhead == pytest.approx(2.0 * held)


@pytest.mark.parametrize("micro_batches", [1, 2, 8])
def test_without_a_pipeline_the_first_and_the_last_pass_have_no_other_micro_batch_beside_them(micro_batches):
    """NVIDIA/Megatron-LM@d98e8a6 megatron/core/pipeline_parallel/combined_1f1b.py; nothing else hides the exchange here."""
    model, cluster = load_model("mixtral-8x7b"), load_cluster("dgx-h100", gpus=16)
    split = {"data_parallel": 16, "expert_parallel": 8, "zero_stage": 1}
    plan = Plan(global_batch=16 * micro_batches, seq_len=4096, overlap_experts=True, **split)
    software = load_framework("megatron-core")
    stack = replaced(software.numbers(), {"overlap_experts": 0.0})
    numbers = model.numbers(), plan.settings(software), plan.numbers(software, model.layers), cluster.numbers(), stack
    whole = layer_exchange(*numbers)
    exposed = layer_pass(*numbers, cluster.device.numbers("bf16")).expert
    exchanged = whole.expert_forward + whole.expert_again + whole.expert_backward
    assert exposed / exchanged == pytest.approx(1.0 - stack.overlap.accompanied_experts * (1.0 - 1.0 / micro_batches))


def test_a_host_that_waits_for_every_kernel_adds_all_that_it_does_and_hides_nothing():
    """Under ``CUDA_LAUNCH_BLOCKING=1`` kernels and launches take turns."""
    plan, free = plan_of(micro_batch=4), load_framework("megatron-core")
    waiting = dataclasses.replace(free, blocking_launches=True)
    quick, slow = (estimate(MODEL, CLUSTER, plan, software) for software in (free, waiting))
    host = free.constants.host
    launched = MODEL.layers * plan.global_batch / plan.data_parallel / plan.micro_batch * (host.forward + host.backward)
    assert slow.step.host - quick.step.host >= 0.9 * launched
    bare = estimate(MODEL, CLUSTER, dataclasses.replace(plan, overlap_gradients=False, overlap_parameters=False), free)
    assert slow.step.gradient_exchange == pytest.approx(bare.step.gradient_exchange)
    assert slow.step.gradient_exchange > quick.step.gradient_exchange


def test_each_kernel_that_the_host_waits_for_takes_as_much_longer():
    """Ninety of a plain layer, forward and twice as many backward, and thirty more where it is computed again."""
    waiting = dataclasses.replace(load_framework("megatron-core"), blocking_launches=True)
    at_once = dataclasses.replace(waiting, constants=replaced(waiting.constants, {"host_blocked_kernel": 0.0}))
    stack = waiting.constants.host
    for recompute, kernels in (("none", 90.0), ("full", 120.0)):
        plan = plan_of(micro_batch=4, recompute=recompute)
        longer = [estimate(MODEL, CLUSTER, plan, one).step.host for one in (at_once, waiting)]
        passes = MODEL.layers * plan.global_batch / plan.data_parallel / plan.micro_batch
        assert longer[1] - longer[0] == pytest.approx(passes * kernels * stack.blocked_kernel, rel=1e-6)


@pytest.mark.parametrize(("dtype", "stage"), [("bf16", 1), ("fp16", 0)])
def test_deepspeeds_optimizer_of_bf16_shards_its_state_at_every_stage(dtype, stage):
    """deepspeedai/DeepSpeed deepspeed/runtime/bf16_optimizer.py @edaa722 partitions by data ranks, at stage 0 too."""
    software = load_framework("megatron-deepspeed")
    plans = [plan_of(zero_stage=zero, dtype=dtype) for zero in (0, stage)]
    unsharded, other = (estimate(MODEL, load_cluster("dgx-a100", gpus=512), plan, software) for plan in plans)
    assert unsharded.memory.optimizer == other.memory.optimizer
    assert (unsharded.memory.optimizer < 12.0 * MODEL.parameters / 256) is (stage == 1)
