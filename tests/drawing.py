"""Strategies that draw a question: a model, a cluster, a plan and a framework."""

import math

import hypothesis.strategies as st
from hypothesis import HealthCheck, assume, settings

from costmodel import IllegalPlan, Plan, Transformer, load_cluster, load_framework, load_model
from costmodel.arithmetic.whole_numbers import divisors
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.formulas.pipeline.schedules import SCHEDULES as TRAITS
from costmodel.formulas.settings import BATCHINGS, DISPATCHERS

quick = settings(
    deadline=None, max_examples=25, derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip

LENGTHS = (512, 2048, 4096, 32768)
WHOLE = {"cuda_graphs": True}
PARTLY = [WHOLE | {"graph_modules": modules} for modules in ("attention", "attention+router", "attention+mlp")]
ITERATION = WHOLE | {"graph_modules": "iteration"}
MODELS = ("gpt3-6.7b", "llama3-8b", "gemma3-4b", "deepseek-v2-lite", "mixtral-8x7b", "qwen3-30b-a3b", "bloom-7b1")
FRAMEWORKS = ("megatron-core", "megatron-lm-2021", "deepspeed", "fsdp2")


@st.composite
def transformers(draw):
    """A decoder of the catalogue, or one that nobody trained."""
    if draw(st.booleans()):
        return load_model(draw(st.sampled_from(MODELS)))
    heads = draw(st.sampled_from([1, 2, 8, 12, 40]))
    hidden = heads * draw(st.sampled_from([16, 64, 128]))
    layers = draw(st.sampled_from([1, 2, 8, 24, 61]))
    shape = {
        "layers": layers, "hidden": hidden, "heads": heads, "kv_heads": draw(st.sampled_from(divisors(heads, heads))),
        "vocabulary": draw(st.sampled_from([1, 50257, 256000])), "gated": draw(st.booleans()),
        "norm": draw(st.sampled_from(["rmsnorm", "layernorm"])), "tied_embeddings": draw(st.booleans()),
        "dropout": draw(st.booleans()), "parallel_block": draw(st.booleans()),
        "prediction_layers": draw(st.integers(0, 1)), "feed_forward": draw(st.sampled_from([1, 4])) * hidden,
    }  # fmt: skip
    if draw(st.booleans()):
        experts = draw(st.sampled_from([2, 8, 64]))
        shape |= {
            "experts": experts, "experts_per_token": draw(st.sampled_from([1, 2])), "expert_feed_forward": 2 * hidden,
            "shared_expert_feed_forward": draw(st.sampled_from([0, hidden])), "dense_layers": draw(st.integers(0, layers)),
            "expert_imbalance": draw(st.floats(1.0, 3.0)),
        }  # fmt: skip
    if draw(st.booleans()):
        shape |= {"kv_latent": 64, "rope_head_dim": 8, "query_latent": draw(st.sampled_from([0, 96]))}
    if draw(st.booleans()):
        shape |= {"sliding_window": 1024, "windowed_layers": draw(st.integers(1, layers))}
    return Transformer(name="drawn", **shape)


@st.composite
def questions(draw, models=None, frameworks=FRAMEWORKS, pipelines=True, zero=None, offload=(0.0, 0.0, 0.5)):
    """Model, cluster, plan and framework; the plan takes the cluster's GPUs, and is legal or not."""
    model = draw(models if models is not None else transformers())
    framework = load_framework(draw(st.sampled_from(frameworks)))
    gpus = draw(st.sampled_from([1, 2, 8, 16, 48, 64]))
    cluster = load_cluster(draw(st.sampled_from(["dgx-h100", "selene", "dgx-b200", "aws-p4d"])), gpus=gpus)
    has = framework.dimensions
    t = draw(st.sampled_from(divisors(gpus, min(8, model.heads)))) if "tensor" in has else 1
    p = draw(st.sampled_from(divisors(gpus // t, min(8, model.layers)))) if pipelines and "pipeline" in has else 1
    c = draw(st.sampled_from(divisors(gpus // (t * p), 4))) if "context" in has else 1
    d = gpus // (t * p * c)
    schedule = draw(st.sampled_from(framework.schedules)) if p > 1 else "1f1b"
    micro_batch = draw(st.sampled_from([1, 2, 4]))
    plan = Plan(
        global_batch=d * micro_batch * draw(st.sampled_from([1, p, 2 * p, 8 * p])),
        seq_len=draw(st.sampled_from([length for length in LENGTHS if length <= (model.learned_positions or max(LENGTHS))])),
        tensor_parallel=t, pipeline_parallel=p, context_parallel=c, data_parallel=d, micro_batch=micro_batch, schedule=schedule,
        virtual_stages=draw(st.sampled_from([2, 4])) if TRAITS[schedule].chunked else 1,
        expert_parallel=draw(st.sampled_from(divisors(math.gcd(model.experts, d * c * t), 64)))
        if model.experts and "expert" in has else 1,
        zero_stage=draw(st.sampled_from(zero if zero is not None else list(framework.zero_stages))),
        sequence_parallel=draw(st.booleans()) if t > 1 else False,
        recompute=draw(st.sampled_from(["none", "selective", "full", 2])),
        attention=draw(st.sampled_from(["flash", "flash", "fused-softmax", "unfused"])),
        dtype=draw(st.sampled_from(["bf16", "bf16", "fp8"]))
        if "fp8" in cluster.device.dense_peak and "fp8" in framework.dtypes
        else "bf16" if "bf16" in framework.dtypes else "fp16",
        **draw(st.sampled_from([{}] * 5 + [{"batching": name, "mean_length": 100.0} for name in BATCHINGS[1:]])),
        **draw(st.sampled_from([{}] * 4 + PARTLY + [WHOLE, ITERATION] * (not model.experts))),
        overlap_gradients=draw(st.booleans()), overlap_parameters=draw(st.booleans()),
        overlap_tensor=draw(st.booleans()), overlap_pipeline=draw(st.booleans()), overlap_experts=draw(st.booleans()),
        dispatcher=draw(st.sampled_from(DISPATCHERS)),
        context_communication=draw(st.sampled_from(framework.context_communications)),
        optimizer_offload=draw(st.sampled_from([0.0, 0.5, 1.0])), activation_offload=draw(st.sampled_from(offload)),
    )  # fmt: skip
    return model, cluster, plan, framework


def legal(question) -> Estimate:
    """The estimate of a drawn question; what is illegal is drawn again."""
    try:
        return estimate(*question)
    except IllegalPlan:
        assume(False)
        raise
