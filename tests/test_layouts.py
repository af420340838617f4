"""Which layers have experts, and what the stages of a pipeline hold, layer by layer against a count of a model's own file."""

import dataclasses
import itertools
import json
import tomllib
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from costmodel import Plan, Transformer, estimate, ledger, load_cluster, load_framework, load_model, timeline
from costmodel.description.mixtures import expert_layout
from costmodel.text.errors import CostModelError, InvalidValue

FRAMEWORKS = [
    name for name, entry in tomllib.loads(files("costmodel.catalogue").joinpath("frameworks.toml").read_text()).items()
    if isinstance(entry, dict) and "pipeline" in load_framework(name).dimensions
    and min(load_framework(name).zero_stages) <= load_framework(name).largest_pipelined_zero_stage
]  # fmt: skip
QWEN2_MOE = {
    "model_type": "qwen2_moe", "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 16,
    "num_key_value_heads": 16, "vocab_size": 151936, "intermediate_size": 5632, "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "use_sliding_window": False, "tie_word_embeddings": False,
}  # fmt: skip
MAVERICK = {
    "model_type": "llama4_text", "num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40, "head_dim": 128,
    "num_key_value_heads": 8, "vocab_size": 202048, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
    "num_local_experts": 128, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 8192,
    "no_rope_layers": [1, 1, 1, 0] * 12, "tie_word_embeddings": False,
}  # fmt: skip


def read(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(config))
    return Transformer.from_huggingface(tmp_path, name="read")


def qwen2_moe_layers(config):
    """huggingface/transformers v4.57 models/qwen2_moe/modeling_qwen2_moe.py, ``Qwen2MoeDecoderLayer``."""
    return [
        layer not in config["mlp_only_layers"]
        and config["num_experts"] > 0
        and (layer + 1) % config["decoder_sparse_step"] == 0
        for layer in range(config["num_hidden_layers"])
    ]


def dealt(layers, ranks, chunks):
    """Layers of each rank as Megatron-LM deals them in equal chunks, one after the other."""
    size = layers // (ranks * chunks)
    return [
        [layer for layer in range(layers) if layer // size % ranks == rank] for rank in range(ranks)
    ]  # fmt: skip


@pytest.mark.parametrize("change", [
    {}, {"decoder_sparse_step": 2}, {"decoder_sparse_step": 3}, {"decoder_sparse_step": 4}, {"decoder_sparse_step": 5},
    {"mlp_only_layers": [0, 1, 2]}, {"mlp_only_layers": [23]}, {"mlp_only_layers": [0, 22, 23]},
    {"decoder_sparse_step": 2, "mlp_only_layers": [1, 3]}, {"decoder_sparse_step": 2, "mlp_only_layers": [0]},
])  # fmt: skip
def test_a_file_says_which_layers_have_experts_and_stages_hold_theirs(change, tmp_path):
    config = QWEN2_MOE | change
    model, wanted = read(tmp_path, config), qwen2_moe_layers(config)
    assert [model.has_experts(layer) for layer in range(model.layers)] == wanted
    for ranks, chunks in ((2, 1), (3, 1), (4, 1), (6, 1), (8, 1), (12, 1), (4, 2), (4, 3), (2, 3)):
        step, size = config["decoder_sparse_step"], 24 // (ranks * chunks)
        if chunks > 1 and step > 1 and (24 // chunks % step or wanted.index(True) > size):
            continue  # a rank's chunks have unlike numbers
        plan = Plan(
            global_batch=96, seq_len=1024, pipeline_parallel=ranks, virtual_stages=chunks,
            schedule="interleaved" if chunks > 1 else "1f1b",
        )  # fmt: skip
        stages = estimate(model, load_cluster("dgx-h100", gpus=ranks), plan).memory.stages
        counted = [sum(wanted[layer] for layer in held) for held in dealt(24, ranks, chunks)]
        assert [stage.expert_layers for stage in stages] == counted, (change, ranks, chunks)


def dealt_beside(layers, ranks, first, last):
    """Layers of each rank where the ends are given theirs: NVIDIA/Megatron-LM@d98e8a6 ``get_num_layers_to_build``."""
    others = ranks - sum(end is not None for end in (first, last))
    each, left = divmod(layers - (first or 0) - (last or 0), others) if others else (0, 0)
    assert left == 0
    counts = [each] * ranks
    counts[0], counts[-1] = first or each, last or each
    ends = np.cumsum([0, *counts])
    return [range(a, b) for a, b in itertools.pairwise(ends)]


ENDS = (
    (2, 16, None), (2, None, 5), (2, 9, 15), (3, 2, 10), (3, 20, 2), (4, 9, 9), (4, 3, None), (4, 1, 3), (5, 8, 4), (6, None, 4),
)  # fmt: skip


@pytest.mark.parametrize("change", [
    {}, {"decoder_sparse_step": 2}, {"decoder_sparse_step": 3}, {"mlp_only_layers": [0, 1, 2]}, {"mlp_only_layers": [23]},
    {"decoder_sparse_step": 2, "mlp_only_layers": [1, 3]},
])  # fmt: skip
def test_ends_that_are_given_their_layers_hold_them_and_stages_between_the_others(change, tmp_path):
    config = QWEN2_MOE | change
    model, wanted = read(tmp_path, config), qwen2_moe_layers(config)
    for ranks, first, last in ENDS:
        plan = Plan(
            global_batch=60, seq_len=1024, pipeline_parallel=ranks, zero_stage=0,
            first_stage_layers=first, last_stage_layers=last,
        )  # fmt: skip
        asked = model, load_cluster("dgx-h100", gpus=ranks), plan, load_framework("megatron-core")
        found, held = estimate(*asked), dealt_beside(24, ranks, first, last)
        counted = [(len(layers), sum(wanted[layer] for layer in layers)) for layers in held]
        assert [(stage.layers, stage.expert_layers) for stage in found.memory.stages] == counted, (change, ranks, first, last)
        assert timeline(*asked).step_time == pytest.approx(found.step_time, rel=0.05)
        assert set(ledger(*asked).sent_bytes) == {"first", "last"} | ({"middle"} if ranks > 2 else set())


@pytest.mark.parametrize(("fields", "error"), [
    ({"first_stage_layers": 9, "last_stage_layers": 9, "pipeline_parallel": 2}, "evenly into the stages between"),
    ({"first_stage_layers": 9, "pipeline_parallel": 4}, "evenly into the stages between"),
    ({"first_stage_layers": 6, "pipeline_parallel": 4, "virtual_stages": 2}, "virtual_stages=2: expected 1"),
    ({"last_stage_layers": 6, "pipeline_parallel": 4, "schedule": "zb-v"}, "one way alone"),
])  # fmt: skip
def test_ends_that_leave_no_even_stages_or_turn_back_are_refused(fields, error):
    with pytest.raises(CostModelError, match=error):
        estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=4), Plan(global_batch=16, seq_len=1024, **fields))


def test_stages_of_llama_4_maverick_hold_the_parameters_that_its_checkpoint_has_there(tmp_path):
    """Meta's checkpoint has 401,583,781,376 numbers, 871,932,416 of them of the vision encoder and its projection, as in Scout;
    stages without sharding hold two bytes of weights each."""
    model, h = read(tmp_path, MAVERICK), 5120
    assert dataclasses.replace(load_model("llama4-maverick"), name="read", published_parameters=None) == model
    scout = load_model("llama4-scout")
    assert model.parameters == 401_583_781_376 - (scout.published_parameters - scout.parameters)
    attention = h * (2 * 40 + 2 * 8) * 128 + 2 * h
    dense, mixed = attention + 3 * h * 16384, attention + 129 * 3 * h * 8192 + 128 * h
    for ranks in (2, 4, 6, 8, 12, 16, 24):
        plan = Plan(global_batch=128, seq_len=1024, pipeline_parallel=ranks, zero_stage=0)
        stages = estimate(model, load_cluster("dgx-h100", gpus=ranks), plan).memory.stages
        for rank, (held, stage) in enumerate(zip(dealt(48, ranks, 1), stages, strict=True)):
            edges = (202048 * h if rank in (0, ranks - 1) else 0) + (h if rank == ranks - 1 else 0)
            counted = edges + sum(mixed if layer % 2 else dense for layer in held)
            assert stage.parts.weights == pytest.approx(2 * counted, rel=1e-12)


def test_layers_that_follow_no_rule_are_said_to_be_spread(tmp_path):
    from costmodel.description.huggingface import read as reading

    (tmp_path / "config.json").write_text(json.dumps(QWEN2_MOE | {"mlp_only_layers": [5, 6, 17]}))
    found = reading(tmp_path)
    assert found.model.dense_layers == 3 and found.model.expert_layer_step == 0
    assert any("no rule" in note for note in found.notes)
    assert sum(map(found.model.has_experts, range(24))) == 21


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_rule_is_the_list_that_it_was_made_of(sparse):
    model = Transformer(
        name="drawn", layers=len(sparse), hidden=64, heads=1, vocabulary=8, feed_forward=8, experts=2, experts_per_token=1,
        expert_feed_forward=8, **expert_layout(sparse),
    )  # fmt: skip
    assert model.expert_layers == sum(sparse)
    has = [model.has_experts(layer) for layer in range(len(sparse))]
    assert has == sparse or (model.expert_layer_step == 0 and sum(has) == sum(sparse))


@pytest.mark.parametrize(("fields", "field"), [
    ({"expert_layer_step": 2, "dense_layers": 3}, "dense_layers"), ({"first_expert_layer": 2, "dense_layers": 1}, "first_expert"),
    ({"expert_layer_step": -1}, "expert_layer_step"), ({"expert_layer_step": 9}, "expert_layer_step"),
    ({"expert_layer_step": 0, "first_expert_layer": 1}, "first_expert_layer"), ({"first_expert_layer": 9}, "first_expert_layer"),
    ({"experts": 0, "experts_per_token": 0, "expert_feed_forward": 0, "expert_layer_step": 2}, "expert_layer_step"),
])  # fmt: skip
def test_a_layout_that_contradicts_itself_is_refused(fields, field):
    shape = {"experts": 2, "experts_per_token": 1, "expert_feed_forward": 8} | fields
    with pytest.raises(InvalidValue, match=field):
        Transformer(name="wrong", layers=8, hidden=64, heads=1, vocabulary=8, feed_forward=8, **shape)


# The fullest stage


@st.composite
def mixtures(draw):
    """A small model of any layout, with experts heavier or lighter than the dense MLP."""
    layers = draw(st.sampled_from([4, 6, 8, 12, 13, 24, 30, 48, 61]))
    shape = {
        "layers": layers, "hidden": 2048, "heads": 16, "vocabulary": draw(st.sampled_from([1000, 50304, 200_000])),
        "feed_forward": draw(st.sampled_from([2048, 65536])), "prediction_layers": draw(st.integers(0, 1)),
        "tied_embeddings": draw(st.booleans()), "dropout": draw(st.booleans()),
    }  # fmt: skip
    layout = draw(st.sampled_from(["no experts", "dense first", "dense around", "in turns", "by no rule"]))
    if layout != "no experts":
        shape |= {
            "experts": draw(st.sampled_from([4, 16])), "experts_per_token": 2,
            "expert_feed_forward": draw(st.sampled_from([256, 4096])),
        }  # fmt: skip
    if layout == "in turns":
        shape["expert_layer_step"] = draw(st.integers(2, min(5, layers)))
        shape["first_expert_layer"] = draw(st.one_of(st.none(), st.integers(0, layers - 1)))
    elif layout != "no experts":
        shape["dense_layers"] = draw(st.integers(0, layers))
        shape["expert_layer_step"] = int(layout != "by no rule")
        if layout == "dense around":
            shape["first_expert_layer"] = draw(st.integers(0, shape["dense_layers"]))
    return Transformer(name="drawn", **shape)


@st.composite
def pipelined(draw, framework):
    """A question of a pipeline under a framework."""
    model = draw(mixtures())
    p = draw(st.sampled_from([2, 3, 4, 5, 6, 8, 12, 16, 32]))
    d, micro_batch = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2]))
    schedule = draw(st.sampled_from(framework.schedules))
    fields = dict(
        global_batch=d * micro_batch * draw(st.sampled_from([1, p, 2 * p, 8 * p])), seq_len=draw(st.sampled_from([128, 8192])),
        pipeline_parallel=p, data_parallel=d, micro_batch=micro_batch, schedule=schedule,
        virtual_stages=draw(st.integers(2, 5)) if schedule in ("interleaved", "breadth-first") else 1,
        expert_parallel=d if model.experts and "expert" in framework.dimensions else 1,
        zero_stage=draw(st.sampled_from([s for s in framework.zero_stages if s <= framework.largest_pipelined_zero_stage])),
        recompute=draw(st.sampled_from(["none", "selective", "full", 2])),
        attention=draw(st.sampled_from(["flash", "unfused"])), compression=draw(st.sampled_from(["none", "none", "int8"])),
        dtype="bf16" if "bf16" in framework.dtypes else "fp16",
    )  # fmt: skip
    try:
        plan = Plan(**fields)
        return estimate(model, load_cluster("dgx-h100", gpus=p * d), plan, framework)
    except CostModelError:
        assume(False)
        raise


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_a_plan_holds_what_its_fullest_stage_does_whatever_the_layout(framework, data):
    made = data.draw(pipelined(load_framework(framework)))
    fullest = max(stage.total for stage in made.memory.stages)
    assert made.memory.total == pytest.approx(fullest, rel=1e-9)
    shared = sum(stage.expert_layers for stage in made.memory.stages)
    assert shared == pytest.approx(made.model.expert_layers, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "gpipe", "zb-h1"])
@pytest.mark.parametrize("ranks", [4, 8, 15, 16, 31, 61])
def test_deepseek_v3_is_never_below_its_fullest_stage(schedule, ranks):
    try:
        plan = Plan(
            global_batch=8 * ranks, seq_len=4096, pipeline_parallel=ranks, schedule=schedule, expert_parallel=8, data_parallel=8,
            virtual_stages=2 if schedule == "interleaved" else 1,
        )  # fmt: skip
        bill = estimate(load_model("deepseek-v3"), load_cluster("dgx-h100", gpus=8 * ranks), plan).memory
    except CostModelError:
        pytest.skip("the layers don't go into so many stages")
    assert bill.total == pytest.approx(max(stage.total for stage in bill.stages), rel=1e-9)


def test_a_timeline_keeps_of_each_stage_what_its_layers_do():
    """Layers of Maverick with experts keep permuted inputs besides."""
    model, cluster = load_model("llama4-maverick"), load_cluster("dgx-h100", gpus=256)
    plan = Plan(
        global_batch=256, seq_len=4096, pipeline_parallel=16, data_parallel=16, expert_parallel=16, recompute="none",
        zero_stage=1,
    )  # fmt: skip
    made, played = estimate(model, cluster, plan), timeline(model, cluster, plan)
    held = np.array([stage.parts.activations for stage in made.memory.stages])
    in_flight = np.minimum(16, 16 - np.arange(16))
    assert played.peak_bytes == pytest.approx(held, rel=1e-9)
    assert held[0] / in_flight[0] < held[1] / in_flight[1]


# Stages without layers


def test_a_rank_for_which_no_layer_is_left_has_nothing_to_sum():
    model, plan = load_model("mpt-7b"), Plan(global_batch=64, seq_len=2048, pipeline_parallel=32, data_parallel=2)
    for compression in ("none", "int8", "power-sgd"):
        made = estimate(model, load_cluster("dgx-h100", gpus=64), dataclasses.replace(plan, compression=compression), "nanotron")
        held = [stage.layers for stage in made.memory.stages]
        assert sum(held) == 32 and min(held) == 0.0
        book = ledger(model, load_cluster("dgx-h100", gpus=64), made.plan, "nanotron")
        assert book.stages[-1].layers == () and book.sent_bytes["last"] > 0.0


# Recomputed attention


def test_scores_that_are_recomputed_live_while_their_layer_is_at_work():
    """Of one layer: 2 bytes for each score of a rank's heads, 4 heads of 32 a rank, and their gradient beside."""
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-a100", gpus=8)
    held = {
        recompute: estimate(
            model, cluster, Plan(global_batch=1, seq_len=32768, tensor_parallel=8, recompute=recompute, attention="unfused"),
            "megatron-lm-2023",
        ).memory
        for recompute in ("none", "selective")
    }  # fmt: skip
    scores = 2 * 4 * 32768**2
    assert held["none"].activations - held["selective"].activations >= 32 * scores
    assert held["selective"].temporaries - 0 >= scores
    assert held["none"].total - held["selective"].total == pytest.approx(31 * scores, rel=0.1)
