"""Modules recomputed alone: what they save and cost, against measured runs, counts by hand and identities."""

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodel import Plan, estimate, ledger, load_cluster, load_framework, load_model, search, simulate
from costmodel.description.recomputation import MODULES
from costmodel.evaluation.notes import notes
from costmodel.formulas.transformer import activations, layer
from costmodel.interop.launchers.reading import read_launch
from costmodel.interop.launchers.writing import write_launch
from costmodel.text.errors import IllegalPlan, InvalidValue

CORE = load_framework("megatron-core")
MOONLIGHT = {
    "model_type": "deepseek_v3", "hidden_size": 2048, "num_hidden_layers": 27, "num_attention_heads": 16,
    "num_key_value_heads": 16, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408,
    "intermediate_size": 11264, "vocab_size": 163840, "first_k_dense_replace": 1, "tie_word_embeddings": False,
    "num_nextn_predict_layers": 0,
}  # fmt: skip
"""moonshotai/Moonlight-16B-A3B config.json."""


def saved(model, plan, recompute):
    """Bytes of an average layer that modules make again."""
    plan = dataclasses.replace(plan, recompute=recompute)
    return activations.module_activations(model.numbers(), plan.settings(CORE), plan.numbers(CORE, model.layers))


def test_bytes_are_those_counted_by_hand():
    """Megatron-Core's modules, tensor by tensor, in 16 bit."""
    model, tokens = load_model("deepseek-v3"), 4096
    plan = Plan(global_batch=64, seq_len=tokens, expert_parallel=64, data_parallel=64)
    sparse, dense = model.expert_layers / model.layers, 1.0 - model.expert_layers / model.layers
    copies = 8 * model.numbers().experts.load
    gated = 3 * 2  # gate, up and their product
    by_hand = {
        "norms": (1.0 + sparse) / 2 * 2 * 2 * 7168,  # one before latent attention, one before experts
        "latent-projections": 2 * 128 * (192 + 192 + 128),
        "expert-activation": sparse * copies * 2 * 2048,
        "mlp": dense * gated * 18432,
        "shared-experts": sparse * gated * 2048,
        "experts": sparse * (copies * (2 * 7168 + gated * 2048) + gated * 2048),  # their outputs are not kept
    }
    for module, each in by_hand.items():
        assert saved(model, plan, module) == pytest.approx(tokens * each, rel=1e-12), module
    # what experts make again holds their activation and the shared ones, and norms then keep the input of experts
    assert saved(model, plan, "experts+shared-experts+expert-activation") == saved(model, plan, "experts")
    beside = saved(model, plan, "norms+experts") - saved(model, plan, "experts")
    assert beside == pytest.approx(tokens * 2 * 7168, rel=1e-9)


@pytest.mark.parametrize("eager", [False, True])
def test_operators_keep_the_attention_core_and_every_second_product(eager):
    """torchtitan's selective checkpointing: a layer's input, outputs of core, queries, values and gate, and in vain of the last.

    A block of these seven products under ``torch.utils.checkpoint`` with that policy (PyTorch 2.13, CPU) is left with exactly the
    storages of these, and eagerly with the output of the last.
    """
    model, fsdp = load_model("llama3-8b"), dataclasses.replace(load_framework("fsdp2"), keep_activated=eager)
    plan = Plan(global_batch=64, seq_len=8192, data_parallel=8, recompute="operators")
    numbers = model.numbers(), plan.settings(fsdp), plan.numbers(fsdp, model.layers)
    by_hand = 2 * (4096 + 4096 + 4096 + 1024 + 14336 + eager * 4096) + 4 * 32
    assert activations.operators_kept(*numbers) == pytest.approx(8192 * by_hand, rel=1e-12)
    whole = activations.layer_activations(*numbers)
    assert activations.module_activations(*numbers) == pytest.approx(whole - 8192 * by_hand, rel=1e-12)


@pytest.mark.parametrize(("micro_batch", "measured"), [(1, 47.65), (2, 77.0)])
def test_compiled_torchtitan_holds_what_was_measured(micro_batch, measured):
    """Llama 3.1 8B on 8 H100: pytorch/torchtitan@b5bcd76 docs (2), pytorch/ao's table of float8 (1), GiB reserved."""
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    plan = Plan(
        global_batch=8 * micro_batch, seq_len=8192, data_parallel=8, micro_batch=micro_batch, recompute="operators",
        fused_norms=True,
    )  # fmt: skip
    memory = estimate(model, cluster, plan, framework="fsdp2").memory
    assert memory.reserved / 2**30 == pytest.approx(measured, rel=0.05)


def test_operators_repeat_the_other_products():
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    plan = Plan(global_batch=64, seq_len=8192, data_parallel=8, recompute="operators")
    step = estimate(model, cluster, plan, framework="fsdp2").step
    again = 4096 * (1024 + 4096) + 4096 * 14336  # keys, the way back and what the gate multiplies
    assert step.hardware_flop - step.model_flop == pytest.approx(64 * 8192 * 32 * 2 * again, rel=1e-12)


@pytest.mark.parametrize(("framework", "read_alone"), [("maxtext", True), ("fsdp2", False)])
def test_a_compiler_leaves_out_what_ends_a_recomputed_layer(framework, read_alone):
    """Of a Llama's seven products of a layer the last, whose output no gradient reads; an eager layer runs again to its end."""
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    plan = Plan(global_batch=64, seq_len=8192, data_parallel=8)
    none, full = (
        estimate(model, cluster, dataclasses.replace(plan, recompute=recompute), framework=framework).step
        for recompute in ("none", "full")
    )
    products = 4096 * (4096 + 1024 + 1024 + 4096) + (2 if read_alone else 3) * 4096 * 14336
    core = 2 * 8192 * 4096  # a token's scores and what they weigh, over all keys
    assert full.hardware_flop - none.hardware_flop == pytest.approx(64 * 8192 * 32 * 2 * (products + core), rel=1e-12)
    eager = dataclasses.replace(load_framework(framework), compiled=False)
    whole = estimate(model, cluster, dataclasses.replace(plan, recompute="full"), framework=eager).step.recompute
    of_products = 4096 * 14336 / (4096 * (10240 + 3 * 14336) + core / 2)  # below the diagonal
    assert 1.0 - full.recompute / whole == pytest.approx(read_alone * of_products, abs=0.03)


def test_deepseek_v3_saves_what_nvidia_counts():
    """30.4 GB of latent projections with PP4 and EP64 (NVIDIA's counts of DeepSeek-V3 under Megatron-Core)."""
    model, cluster = load_model("deepseek-v3"), load_cluster("dgx-h100", gpus=256)
    plan = Plan(global_batch=4096, seq_len=4096, pipeline_parallel=4, expert_parallel=64, data_parallel=64)
    whole = estimate(model, cluster, plan).memory.activations
    kept = estimate(model, cluster, dataclasses.replace(plan, recompute="latent-projections")).memory.activations
    assert whole - kept == pytest.approx(30.4e9, rel=0.1)


@pytest.mark.parametrize(("recompute", "measured"), [("latent-projections", 0.716e9), ("expert-activation", 0.677e9)])
def test_moonlight_saves_what_was_measured(tmp_path, recompute, measured):
    """On 8 H100, TP 2, EP 8, and 36.6 GB at its peak, which lies where not all of it counts (NVIDIA-NeMo/Megatron-Bridge
    @067f987 skills/nemo-mbridge-perf-activation-recompute)."""
    (tmp_path / "config.json").write_text(json.dumps(MOONLIGHT))
    model, cluster = load_model(tmp_path / "config.json"), load_cluster("dgx-h100", gpus=8)
    plan = Plan(global_batch=4, seq_len=4096, tensor_parallel=2, expert_parallel=8, data_parallel=4)
    whole = estimate(model, cluster, plan).memory.total
    kept = estimate(model, cluster, dataclasses.replace(plan, recompute=recompute)).memory.total
    assert measured < whole - kept < 1.45 * measured


def test_an_mlp_costs_its_forward_pass_again():
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    plan = Plan(global_batch=64, seq_len=8192, data_parallel=8, recompute="mlp")
    answer = estimate(model, cluster, plan)
    model_, settings_, numbers, _, software, device = answer.inputs
    products = layer.mlp(model_, model_.mlp.width, settings_, numbers, software, device)[0]
    moved = software.compute.elementwise_traffic * 2 * 3 * 8192 * 14336 / device.memory_bandwidth
    assert answer.step.recompute == pytest.approx(8 * 32 * (products + moved), rel=1e-9)
    repeated = answer.step.hardware_flop - answer.step.model_flop
    assert repeated == pytest.approx(64 * 8192 * 32 * 2 * 3 * 4096 * 14336, rel=1e-12)


PLANS = st.builds(
    Plan, global_batch=st.just(256), seq_len=st.just(4096), tensor_parallel=st.sampled_from([1, 2, 4]),
    expert_parallel=st.sampled_from([1, 4, 8]), data_parallel=st.just(8), micro_batch=st.sampled_from([1, 2]),
    sequence_parallel=st.booleans(), dtype=st.sampled_from(["bf16", "fp8"]),
    recompute=st.lists(st.sampled_from(list(MODULES)), min_size=1, unique=True).map("+".join),
)  # fmt: skip
MODELS = st.sampled_from(["deepseek-v2-lite", "mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b"])


@pytest.mark.slow
@given(plan=PLANS, name=MODELS)
@settings(max_examples=40, deadline=None)
def test_modules_lie_between_nothing_and_everything(plan, name):
    model, cluster = load_model(name), load_cluster("dgx-h100", gpus=plan.gpus)
    try:
        part = estimate(model, cluster, plan)
    except IllegalPlan:  # experts that don't divide
        return
    none, full = (estimate(model, cluster, dataclasses.replace(plan, recompute=kind)) for kind in ("none", "full"))
    assert none.step_time <= part.step_time * (1 + 1e-12)
    assert part.step.recompute <= full.step.recompute * (1 + 1e-12)
    assert full.memory.activations <= part.memory.activations * (1 + 1e-12) <= none.memory.activations * (1 + 2e-12)
    assert none.step.exchange_bytes <= part.step.exchange_bytes * (1 + 1e-12) <= full.step.exchange_bytes * (1 + 2e-12)
    played = simulate(model, cluster, plan)
    assert played.step_time == pytest.approx(part.step_time, rel=0.05)


@pytest.mark.parametrize("recompute", ["mlp", "experts", "shared-experts", "norms+latent-projections"])
def test_the_ledger_counts_what_is_sent_again(recompute):
    model, cluster = load_model("deepseek-v2-lite"), load_cluster("dgx-h100", gpus=16)
    plan = Plan(global_batch=64, seq_len=4096, tensor_parallel=2, expert_parallel=8, data_parallel=8, zero_stage=0)
    sent = [estimate(model, cluster, dataclasses.replace(plan, recompute=kind)) for kind in ("none", recompute)]
    booked = [ledger(model, cluster, one.plan).sent_bytes["only"] for one in sent]
    assert booked[1] - booked[0] == pytest.approx(sent[1].step.exchange_bytes - sent[0].step.exchange_bytes, rel=1e-6, abs=1.0)


def test_a_search_tries_modules_as_estimate_prices_them():
    model, cluster = load_model("deepseek-v2-lite"), load_cluster("dgx-h100", gpus=16)
    kinds = ["none", "mlp+norms", "experts", "full"]
    found = search(
        model, cluster, global_batch=64, seq_len=4096, recompute=kinds, tensor_parallel=2, pipeline_parallel=1, top=1000
    )
    assert {one.plan.recompute for one in found} == {"none", "norms+mlp", "experts", "full"}
    for one in found[::37]:
        alone = estimate(model, cluster, one.plan)
        assert (one.step_time, one.memory.total) == pytest.approx((alone.step_time, alone.memory.total), rel=1e-12)


def test_what_cannot_be_recomputed_is_refused():
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    with pytest.raises(InvalidValue, match="modules with a plus between them, of attention-core, norms"):
        Plan(global_batch=8, seq_len=512, recompute="norms+heads")
    with pytest.raises(InvalidValue, match="each module once"):
        Plan(global_batch=8, seq_len=512, recompute="norms+norms")
    plan = Plan(global_batch=8, seq_len=512, data_parallel=8, recompute="mlp")
    with pytest.raises(IllegalPlan, match="recompute='mlp': fsdp2 has none, selective, full"):
        estimate(model, cluster, plan, "fsdp2")
    with pytest.raises(InvalidValue, match="what fsdp2 has: none, selective, full"):
        search(model, cluster, global_batch=8, seq_len=512, framework="fsdp2", recompute=["none", "mlp"])


def test_a_module_that_the_model_has_not_is_said():
    model, cluster = load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8)
    plan = Plan(global_batch=8, seq_len=512, data_parallel=8, recompute="latent-projections")
    (line,) = notes(estimate(model, cluster, plan))
    assert line.startswith("recompute=latent-projections changes neither time nor memory")


def test_megatron_says_modules_by_its_own_names():
    launch = read_launch("--num-layers 2 --recompute-granularity selective --recompute-modules moe_act mla_up_proj\n")
    assert launch.plan_fields["recompute_modules"] == "latent-projections+expert-activation"
    plan = Plan(global_batch=64, seq_len=4096, expert_parallel=8, data_parallel=8, zero_stage=1, recompute="mlp+experts")
    text = write_launch("megatron", plan, load_model("deepseek-v2-lite"))
    assert "--recompute-modules mlp moe" in text
    assert read_launch(text, gpus=8).plan_fields["recompute_modules"] == "mlp+experts"


def test_a_share_of_the_layers_is_between_none_and_all_of_them():
    """A block of three of each stage's eight layers (NVIDIA/Megatron-LM@d98e8a6 megatron/core/transformer/transformer_config.py,
    ``recompute_method``): memory and time of a forward pass more lie where three eighths of the way are."""
    plan = Plan(global_batch=32, seq_len=4096, pipeline_parallel=4, data_parallel=2, attention="flash")
    written = write_launch("megatron", dataclasses.replace(plan, recompute=0.375), load_model("llama3-8b"))
    assert "--recompute-method block" in written
    assert "--recompute-num-layers 3" in written
    told = {}
    for recompute in ("none", read_launch(written).plan.recompute, "full"):
        one = dataclasses.replace(plan, recompute=recompute)
        told[recompute] = estimate(load_model("llama3-8b"), load_cluster("dgx-h100", 8), one, CORE)
    none, some, full = (one.memory.activations for one in told.values())
    assert 0.375 in told
    assert (none - some) / (none - full) == pytest.approx(0.375, rel=0.05)  # beside the layer at work
    none, some, full = (one.times["recompute"] for one in told.values())
    assert (some, none) == (pytest.approx(0.375 * full, rel=1e-6), 0.0)
