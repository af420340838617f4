"""The bill of every stage is the bill that estimates and searches give, and it adds up."""

import dataclasses

import pytest
from hypothesis import assume, given, settings

from costmodel import InvalidValue, Plan, Transformer, load_cluster, load_framework, load_model
from costmodel.arithmetic.named_tuples import replaced
from costmodel.evaluation.estimation import estimate
from costmodel.evaluation.memory_breakdown import PARTS
from costmodel.interop.launchers import read_launch
from costmodel.interop.launchers.pricing import plan_of
from costmodel.interop.launchers.writing import write_launch
from costmodel.text.errors import IllegalPlan
from tests.drawing import legal, questions, quick

LAUNCH = (
    "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 "
    "--tensor-model-parallel-size 2 --bf16 "
)


@quick
@given(questions())
def test_the_fullest_of_all_stages_is_what_the_closed_form_finds(question):
    found = legal(question)
    assert max(stage.total for stage in found.memory.stages) == pytest.approx(found.memory.total, rel=1e-12)
    assert sum(stage.layers for stage in found.memory.stages) == found.model.layers


@quick
@given(questions())
def test_every_stage_adds_up_and_is_full_at_one_moment(question):
    found = legal(question)
    for stage in found.memory.stages:
        assert sum(getattr(stage.parts, part) for part in PARTS) == pytest.approx(stage.total, rel=1e-12)
        assert stage.phase in ("loss", "backward", "update")
        if found.plan.schedule in ("1f1b", "interleaved"):  # elsewhere logits of other micro-batches may wait
            assert stage.parts.temporaries == 0.0 or stage.parts.logits == 0.0
        assert [size for _, size in stage.largest] == sorted((size for _, size in stage.largest), reverse=True)


@quick
@given(questions(zero=[1, 2, 3], offload=(0.0,)))
def test_all_ranks_together_hold_at_least_the_model(question):
    found = legal(question)
    ranks = found.plan.gpus / found.plan.pipeline_parallel
    weights = sum(stage.parts.weights for stage in found.memory.stages) * ranks
    assert weights >= 0.999 * found.model.parameters * found.memory.asked.settings.widths.stored


def test_the_loss_is_the_fullest_moment_of_a_large_vocabulary_and_the_backward_pass_of_a_small_one():
    cluster, plan = load_cluster("dgx-h100", gpus=8), Plan(global_batch=8, seq_len=8192, data_parallel=8)
    large = estimate(load_model("gemma3-4b"), cluster, plan)
    assert large.memory.phase == "loss"
    deep = Plan(global_batch=64, seq_len=8192, pipeline_parallel=8)
    assert estimate(load_model("llama3-8b"), cluster, deep).memory.phase == "backward"


def test_reserved_bytes_lie_between_allocated_and_all():
    plan = Plan(global_batch=8, seq_len=8192, data_parallel=8)
    found = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), plan)
    asked = found.memory.asked
    busy = dataclasses.replace(found.memory, asked=asked._replace(software=replaced(asked.software, {"memory_idle": 0.0})))
    assert found.memory.allocated < busy.reserved <= found.memory.total
    assert busy.reserved < found.memory.reserved  # what is idle comes on top, and is given back where memory is short


@pytest.mark.slow
@settings(quick, max_examples=150)
@given(questions())
def test_the_timelines_peak_is_the_closed_form_on_every_stage(question):
    found = legal(question)
    for stage in found.memory.stages:
        line = found.memory.timeline(stage.stage)
        assert line.peak.held.total == pytest.approx(stage.total, rel=1e-12)
        if found.plan.cuda_graphs and not found.plan.graph_modules and stage.phase == "backward":
            assert line.peak == line.moments[0]  # graphs hold as much all the time
        elif not found.plan.graph_modules:  # whose parts may leave a pass nothing of its own
            assert stage.phase in line.peak.event or (stage.phase, line.peak.event) == ("backward", "backward-input")


@quick
@given(questions())
def test_a_timeline_begins_and_ends_with_nothing_in_flight_but_the_states(question):
    found = legal(question)
    bill = found.memory
    line = bill.timeline()
    assert line.moments[-1].event == "update"
    captured = found.plan.cuda_graphs and found.plan.graph_modules != "mlp"
    assert (line.moments[-1].held.activations == 0.0) != captured
    assert {moment.held.weights for moment in line.moments} == {bill.weights}
    assert len(line.frame()) == len(line.moments)


@settings(quick, max_examples=40)
@given(questions(offload=(0.0,)))
def test_ranks_of_every_schedule_hold_all_layers_once_and_the_fullest_is_found(question):
    found = legal(question)
    layers = [stage.layers for stage in found.memory.stages]
    assert sum(layers) == pytest.approx(found.model.layers)
    assert found.memory.fullest.total == pytest.approx(found.memory.total, rel=1e-12)
    if found.plan.schedule in ("dualpipe", "chimera"):
        first, last = found.memory.stages[0], found.memory.stages[-1]
        assert first.parts.weights == pytest.approx(last.parts.weights)


@quick
@given(questions(offload=(0.0,)))
def test_graphs_keep_all_that_comes_and_goes_in_their_layers_beside_the_loss_and_the_update(question):
    """Eager, the fullest moment has the largest of loss, backward pass and update; with graphs these add up. Whole gradients of
    embedding and head, where they come up as they are made or meet, and buckets of gradients are outside of them."""
    model, cluster, plan, framework = question
    assume(not model.experts and not model.tied_embeddings and not framework.lazy_gradients)
    assume(plan.zero_stage not in (1, 2) or not framework.buckets.startswith("deepspeed"))
    eager, graphed = (
        legal((model, cluster, dataclasses.replace(plan, cuda_graphs=graphs, graph_modules=None), framework))
        for graphs in (False, True)
    )
    for one, other in zip(eager.memory.stages, graphed.memory.stages, strict=True):
        line = eager.memory.timeline(one.stage).moments
        kept = max(moment.held.activations for moment in line) + max(
            moment.held.temporaries for moment in line if moment.event.startswith("backward") and moment.held.activations
        )
        assert other.parts.activations == pytest.approx(kept, rel=1e-9)
        eagerly, in_graphs = (float(bill.total - bill.overhead) for bill in (one.parts, other.parts))
        assert in_graphs >= eagerly * (1.0 - 1e-12)


def test_graphs_free_small_layers_of_the_host_and_leave_large_ones_as_they_are():
    cluster = load_cluster("dgx-h100", gpus=8)
    small = Plan(global_batch=8, seq_len=512, data_parallel=8)
    tiny = Transformer(name="tiny", layers=24, hidden=512, heads=8, vocabulary=32000, feed_forward=2048)
    eager, graphed = (estimate(tiny, cluster, dataclasses.replace(small, cuda_graphs=on)) for on in (False, True))
    assert graphed.step_time < 0.8 * eager.step_time
    large = Plan(global_batch=8, seq_len=8192, tensor_parallel=8)
    eager, graphed = (
        estimate(load_model("llama3-70b"), cluster, dataclasses.replace(large, cuda_graphs=on)) for on in (False, True)
    )
    assert graphed.step_time == pytest.approx(eager.step_time, rel=0.01)


def test_graphs_of_the_modules_around_experts_free_the_host_of_their_kernels_alone():
    """Megatron's ``--cuda-graph-scope attn moe_router moe_preprocess``: experts are launched as ever."""
    model, cluster = load_model("qwen3-30b-a3b"), load_cluster("dgx-h100", gpus=8)
    plan = Plan(global_batch=64, seq_len=128, data_parallel=8, expert_parallel=8, zero_stage=1)
    hosts = {}
    for modules in (None, "attention", "router", "attention+router"):
        graphed = dataclasses.replace(plan, cuda_graphs=modules is not None, graph_modules=modules)
        hosts[modules] = estimate(model, cluster, graphed).step.host
    assert hosts["attention+router"] < min(hosts["attention"], hosts["router"]) and max(hosts.values()) == hosts[None]
    constants = load_framework("megatron-core", "hopper").constants.host
    seconds = model.layers * 8 * (constants.forward + constants.backward)
    assert hosts[None] - hosts["attention"] == pytest.approx(0.5 * seconds, rel=0.05)  # half of thirty kernels


@pytest.mark.parametrize("pipeline", [1, 4])
def test_a_graph_of_an_iteration_leaves_the_host_what_it_does_once_a_step(pipeline):
    """NVIDIA/Megatron-LM@00caa53 megatron/core/full_cuda_graph.py: one replay has the passes of every micro-batch."""
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    plan = Plan(global_batch=64, seq_len=1024, pipeline_parallel=pipeline, data_parallel=8 // pipeline, cuda_graphs=True)
    layers, whole = (estimate(model, cluster, dataclasses.replace(plan, graph_modules=held)) for held in (None, "iteration"))
    host = load_framework("megatron-core", "hopper").constants.host
    assert whole.step.host == pytest.approx(host.pace * host.step)
    calls = 2 * host.pipeline_call if pipeline > 1 else 0.0
    launches = 2 * 2.5e-6 * model.layers / pipeline
    most = plan.micro_batches * (host.pace * (host.micro_batch + calls) + launches)
    assert whole.step.host < layers.step.host <= whole.step.host + most * (1 + 1e-12)
    assert whole.memory.total == layers.memory.total


@pytest.mark.parametrize("said", ["impl full_iteration", "impl local --cuda-graph-scope full_iteration"])
def test_a_launch_says_that_an_iteration_is_one_graph(said):
    plan = plan_of(read_launch(LAUNCH + "--cuda-graph-" + said), 8, [])
    assert (plan.cuda_graphs, plan.graph_modules) == (True, "iteration")
    assert "full_iteration" in write_launch("megatron", plan, load_model("llama3-8b"))


def test_flags_that_say_both_that_graphs_are_there_and_that_they_are_not_conflict():
    assert read_launch(LAUNCH + "--enable-cuda-graph --cuda-graph-impl none").conflicts


def test_modules_of_graphs_are_named_and_need_graphs():
    fields = {"global_batch": 8, "seq_len": 512, "data_parallel": 8}
    assert Plan(**fields, cuda_graphs=True, graph_modules="moe_router,moe_preprocess,attn").graph_modules == "attention+router"
    with pytest.raises(InvalidValue, match="graph_modules='experts'"):
        Plan(**fields, cuda_graphs=True, graph_modules="experts")
    with pytest.raises(InvalidValue, match="cuda_graphs=True has it"):
        Plan(**fields, graph_modules="attention")


def test_a_recipe_of_experts_with_graphs_around_them_is_priced():
    said = (
        "--num-layers 16 --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 4096 --num-experts 64 --moe-router-topk 8 "
        "--seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --expert-model-parallel-size 8 --bf16 "
        "--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router moe_preprocess"
    )
    plan = plan_of(read_launch(said), 8, [])
    assert (plan.cuda_graphs, plan.graph_modules) == (True, "attention+router")
    written = write_launch("megatron", plan, load_model("mixtral-8x7b"))
    assert "attn moe_router moe_preprocess" in written and "transformer_engine" in written


def test_graphs_with_experts_are_refused():
    plan = Plan(global_batch=8, seq_len=512, data_parallel=8, cuda_graphs=True)
    with pytest.raises(IllegalPlan, match="cuda_graphs=True with the 8 experts"):
        estimate(load_model("mixtral-8x7b"), load_cluster("dgx-h100", gpus=8), plan)
