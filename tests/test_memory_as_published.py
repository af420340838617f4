"""Launch files and questions as users of fine-tune and training software have them, against the memory that it publishes [GiB].

What a source calls GB is taken for 2^30 bytes, and for 10^9 where its code divides by that.
"""

import dataclasses

import pytest

from costmodel import (
    Plan,
    Transformer,
    estimate,
    load_cluster,
    load_framework,
    load_model,
    machine,
    read_launch,
)
from costmodel.formulas.settings import LOSSES
from costmodel.text.units import GiB
from tests.commanding import strict

GB = 1e9 / GiB


def told(text, device, gpus=1, release="", **settings):
    """Memory of a launch's fullest GPU, of the software as of a month if one is given."""
    launch = read_launch(text, gpus=gpus, settings=settings)
    software = f"{launch.software}@{release}" if release else launch.software
    return estimate(launch.model, machine(device, gpus=gpus), launch.plan, software).memory


def asked(run, *words):
    code, out, err = run("estimate", *words, "--json")
    assert code in (0, 1) and err.count("\n") <= 1
    return strict(out)


def tensors(answer):
    stage = max(answer["stages"], key=lambda one: one["total_bytes"])
    return (stage["total_bytes"] - stage["overhead_bytes"]) / GiB


QLORA = """
base_model: {}
load_in_4bit: true
adapter: qlora
sequence_len: 2048
sample_packing: true
lora_r: 32
lora_target_linear: true
gradient_accumulation_steps: 4
micro_batch_size: 2
optimizer: adamw_bnb_8bit
bf16: auto
gradient_checkpointing: true
attn_implementation: flash_attention_2
"""
CUT = "plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"
LORA_OF_EXPERTS = """
base_model: openai/gpt-oss-20b
adapter: lora
sequence_len: 4096
sample_packing: true
lora_r: 8
lora_target_linear: true
gradient_accumulation_steps: 8
micro_batch_size: 1
optimizer: adamw_torch_8bit
bf16: true
gradient_checkpointing: true
activation_offloading: true
"""
FULL = """
base_model: NousResearch/Meta-Llama-3.1-8B
sequence_len: 8192
sample_packing: true
gradient_accumulation_steps: 8
micro_batch_size: 1
optimizer: paged_adamw_8bit
bf16: auto
gradient_checkpointing: true
attn_implementation: flash_attention_2
"""
OF_ATTENTION = "lora_target_modules: [q_proj, k_proj, v_proj, o_proj]"
AXOLOTL = {
    "apertus": (QLORA.format("swiss-ai/Apertus-8B-Instruct-2509") + CUT, 8.7),
    "arcee": (QLORA.format("arcee-ai/AFM-4.5B") + CUT, 7.8),
    "ministral": (QLORA.format("mistralai/Ministral-8B-Instruct-2410") + CUT, 8.76),
    "devstral": (QLORA.format("mistralai/Devstral-Small-2507") + CUT, 21.0),
    "seed-oss": (QLORA.format("ByteDance-Seed/Seed-OSS-36B-Instruct") + CUT, 27.7),
    "mimo": (QLORA.format("XiaomiMiMo/MiMo-7B-RL"), 17.2),
    "gpt-oss": (LORA_OF_EXPERTS + CUT, 44.0),
    "glm-4.5-air": (QLORA.format("zai-org/GLM-4.5-Air").replace("lora_target_linear: true", OF_ATTENTION) + CUT, 63.4),
    "glm-4.7-flash": (
        QLORA.format("zai-org/GLM-4.7-Flash").replace("lora_target_linear: true", OF_ATTENTION)
        .replace("load_in_4bit: true\nadapter: qlora", "load_in_8bit: true\nadapter: lora") + CUT, 35.0,
    ),
    "llama-3": (FULL, 48.0),
}  # fmt: skip


@pytest.mark.parametrize(("text", "published"), AXOLOTL.values(), ids=AXOLOTL)
def test_axolotls_examples_take_what_their_readmes_say(text, published):
    """axolotl-ai-cloud/axolotl@067b021c8 examples/*/README.md, which don't say whether that is allocated or reserved."""
    memory = told(text, "a100-sxm-80gb")
    assert 0.9 * memory.allocated <= published * GiB <= 1.1 * memory.total


def test_axolotls_fsdp2_trains_weights_as_they_were_loaded():
    """46 GiB reserved on each of four: examples/gpt-oss/README.md, of August 2025; in 32 bit their states alone take 49."""
    text = LORA_OF_EXPERTS.replace("adapter: lora\n", "").replace("lora_r: 8\nlora_target_linear: true\n", "") + CUT
    text = text.replace("gradient_accumulation_steps: 8", "gradient_accumulation_steps: 2") + (
        "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n  reshard_after_forward: true\n"
    )
    assert told(text, "a100-sxm-80gb", 4, "2025-08").total / GiB == pytest.approx(46.0, rel=0.1)


FACTORY = """
model_name_or_path: meta-llama/Llama-2-7b-hf
stage: sft
finetuning_type: lora
lora_target: all
lora_rank: 8
cutoff_len: {length}
per_device_train_batch_size: {micro}
gradient_accumulation_steps: 4
bf16: true
flash_attn: fa2
"""
IN_4_BIT = "quantization_bit: 4\n"
UNSLOTH = "use_unsloth: true\n"
FACTORY_RUNS = {
    "qlora-2048": (FACTORY.format(length=2048, micro=1) + IN_4_BIT, "", 7),
    "qlora-4096": (FACTORY.format(length=4096, micro=1) + IN_4_BIT, "", 9),
    "qlora-8192": (FACTORY.format(length=8192, micro=1) + IN_4_BIT, "", 12),
    "qlora-16384": (FACTORY.format(length=16384, micro=1) + IN_4_BIT, "2024-04", 19),
    "qlora-32768": (FACTORY.format(length=32768, micro=1) + IN_4_BIT, "2024-04", 32),
    "qlora-of-four": (FACTORY.format(length=1024, micro=4) + IN_4_BIT, "", 9),
    "lora-of-four": (FACTORY.format(length=1024, micro=4), "", 17),
    "unsloth-2048": (FACTORY.format(length=2048, micro=1) + IN_4_BIT + UNSLOTH, "2024-04", 6),
    "unsloth-4096": (FACTORY.format(length=4096, micro=1) + IN_4_BIT + UNSLOTH, "2024-04", 7),
    "unsloth-8192": (FACTORY.format(length=8192, micro=1) + IN_4_BIT + UNSLOTH, "2024-04", 8),
    "unsloth-16384": (FACTORY.format(length=16384, micro=1) + IN_4_BIT + UNSLOTH, "2024-04", 10),
    "unsloth-of-four": (FACTORY.format(length=1024, micro=4) + IN_4_BIT + UNSLOTH, "2024-04", 7),
    "unsloth-lora-of-four": (FACTORY.format(length=1024, micro=4) + UNSLOTH, "2024-04", 16),
}


@pytest.mark.parametrize(("text", "release", "published"), FACTORY_RUNS.values(), ids=FACTORY_RUNS)
def test_llama_factory_takes_what_its_wiki_says(text, release, published):
    """https://github.com/hiyouga/LLaMA-Factory/wiki/Performance-comparison, of April 2024, on an A100 of 40 GB, in whole GB."""
    assert told(text, "a100-sxm-40gb", release=release).total / GiB == pytest.approx(published, rel=0.1)


def test_llama_factorys_unsloth_is_priced_by_unsloths_kernels_where_nothing_is_sharded():
    text = FACTORY.format(length=2048, micro=1) + IN_4_BIT + UNSLOTH
    launch = read_launch(text, gpus=1)
    assert launch.software == "unsloth" and launch.plan.activation_offload == 1.0
    sharded = read_launch(text + "deepspeed: examples/deepspeed/ds_z2_config.json\n", gpus=4)
    assert sharded.software == "deepspeed"


ACCELERATE = """
distributed_type: {kind}
mixed_precision: '{mixed}'
num_machines: 1
num_processes: {gpus}
"""
FSDP = """
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: {offload}
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_use_orig_params: false
"""
SCRIPT = (
    "accelerate launch --config_file mine.yaml train.py --model_name_or_path meta-llama/Llama-2-70b-hf --max_seq_len 2048 "
    "--bf16 True --packing True --per_device_train_batch_size {micro} --gradient_accumulation_steps {steps} "
    "--gradient_checkpointing True "
    "--use_reentrant {reentrant} --use_flash_attn True --use_peft_lora True --lora_r 8 --lora_target_modules all-linear "
    "--use_4bit_quantization {quantised}"
)
QUANTISED = SCRIPT.format(micro=2, steps=2, reentrant=True, quantised=True)
BY_FSDP = ACCELERATE.format(kind="FSDP", mixed="no", gpus=2) + FSDP
PEFT = {
    "fsdp-qlora": (QUANTISED, BY_FSDP.format(offload="false"), 2, 35.6),
    "fsdp-qlora-on-the-host": (QUANTISED, BY_FSDP.format(offload="true"), 2, 19.6),
    "fsdp-lora": (
        SCRIPT.format(micro=8, steps=4, reentrant=False, quantised=False),
        ACCELERATE.format(kind="FSDP", mixed="bf16", gpus=8) + FSDP.format(offload="false"), 8, 76.0,  # 72 to 80
    ),
}  # fmt: skip


@pytest.mark.parametrize(("script", "config", "gpus", "published"), PEFT.values(), ids=PEFT)
def test_a_llama_2_70b_takes_what_pefts_guides_say(run, tmp_path, script, config, gpus, published):
    """huggingface/peft@5d602fdb docs/source/accelerate/fsdp.md, "Memory usage"."""
    (tmp_path / "mine.yaml").write_text(config)
    (tmp_path / "mine.sh").write_text(script)
    files = str(tmp_path / "mine.sh"), str(tmp_path / "mine.yaml")
    code, out, _ = run("explain", *files, "--cluster", "dgx-h100", "--gpus", str(gpus), "--json")
    assert code in (0, 1)
    assert strict(out)["peak_memory_bytes"] / GiB == pytest.approx(published, rel=0.1)


MEGATRON = (
    "megatron {verb} --model {model} --micro_batch_size 1 --packing true --finetune true --cross_entropy_loss_fusion true "
    "--max_length {length} --sequence_parallel true --attention_backend flash "
)
SWIFT = (
    "swift sft --model {model} --tuner_type {tuner} --torch_dtype bfloat16 --per_device_train_batch_size 1 --packing true "
    "--gradient_accumulation_steps {steps} --max_length {length} --attn_impl flash_attn "
)
DENSE = MEGATRON.format(verb="sft", model="Qwen/Qwen2.5-7B", length=32768) + (
    "--tensor_model_parallel_size 4 --global_batch_size 8 --recompute_granularity full --recompute_method uniform "
    "--recompute_num_layers 1"
)
SWIFTS = {
    "long_text": (DENSE, "a100-sxm-80gb", 4, 50.0),
    "base_to_chat": (
        MEGATRON.format(verb="sft", model="Qwen/Qwen2.5-14B", length=8192)
        + "--tensor_model_parallel_size 4 --global_batch_size 16 --recompute_granularity selective",
        "a100-sxm-80gb", 8, 65.0,
    ),
    "moe": (
        MEGATRON.format(verb="sft", model="Qwen/Qwen3-30B-A3B-Instruct-2507", length=8192)
        + "--tensor_model_parallel_size 4 --pipeline_model_parallel_size 2 --expert_model_parallel_size 4 "
        "--moe_grouped_gemm true --global_batch_size 4 --recompute_granularity full --recompute_method uniform "
        "--recompute_num_layers 1 "
        "--decoder_first_pipeline_num_layers 25 --moe_expert_capacity_factor 2",
        "a100-sxm-80gb", 8, 76.0,
    ),
    "fp8": (
        MEGATRON.format(verb="sft", model="Qwen/Qwen3-14B-FP8", length=8192)
        + "--tensor_model_parallel_size 4 --global_batch_size 16 --recompute_granularity selective --fp8_recipe blockwise "
        "--fp8_format e4m3 --fp8_param_gather true --use_precision_aware_optimizer true --exp_avg_dtype bf16 "
        "--exp_avg_sq_dtype bf16",
        "h20", 8, 58.0,
    ),
    "liger": (
        SWIFT.format(model="Qwen/Qwen2.5-7B", tuner="full", steps=2, length=16384) + "--deepspeed zero3 --use_liger_kernel true",
        "a100-sxm-80gb", 4, 42.0,
    ),
    "flash-attention-3": (
        SWIFT.format(model="Qwen/Qwen2.5-7B", tuner="full", steps=4, length=16384) + "--deepspeed zero3 --use_liger_kernel true",
        "h20", 4, 43.0,
    ),
    "zero-2": (
        SWIFT.format(model="Qwen/Qwen2.5-14B", tuner="full", steps=2, length=8192) + "--deepspeed zero2",
        "a100-sxm-80gb", 8, 80.0,
    ),
    "lora": (SWIFT.format(model="Qwen/Qwen2.5-7B-Instruct", tuner="lora", steps=4, length=2048), "a100-sxm-80gb", 1, 22.0),
    "512k": (
        SWIFT.format(model="Qwen/QwQ-32B", tuner="lora", steps=2, length=512_000)
        + "--deepspeed zero3_offload --use_liger_kernel true --sequence_parallel_size 8", "a100-sxm-80gb", 8, 80.0,
    ),
}  # fmt: skip


OF_MONTH = {"512k": "2025-05"}  # in which the file came (c0d14cf3d): software has changed since


@pytest.mark.parametrize("name", SWIFTS)
def test_ms_swifts_packed_examples_take_what_their_first_lines_say(name):
    """modelscope/ms-swift@3602360a5 examples/megatron/{long_text,base_to_chat}.sh, mcore_bridge/full/moe.sh, fp8/benchmark.sh,
    benchmark/deepspeed.sh; examples/train/packing/{liger_kernel,llm}.sh, flash_attention_3/transformers.sh,
    sequence_parallel/sequence_parallel_512k.sh: what is reserved."""
    text, device, gpus, published = SWIFTS[name]
    found = told(f"NPROC_PER_NODE={gpus} {text}", device, gpus, OF_MONTH.get(name, ""))
    assert found.total / GiB == pytest.approx(published, rel=0.1)


PIECES = (
    "--num-layers 12 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024 "
    "--vocab-size 50432 --micro-batch-size 4 --global-batch-size 32 --tensor-model-parallel-size 2 "
    "--pipeline-model-parallel-size 2 --bf16"
)
MEASURED = {"h100": 1.711 - 1.330, "a100": 1.651 - 1.313, "gb200": 1.712 - 1.338}


@pytest.mark.parametrize("measured", MEASURED.values(), ids=MEASURED)
def test_megatrons_own_fused_loss_holds_more_than_its_unfused_one(measured):
    """NVIDIA/Megatron-LM@d98e8a64 tests/functional_tests/test_cases/gpt/gpt3_mcore_te_tp2_pp2_cross_entropy_loss_fusion: golden
    values of the last stage, less those of its tests that differ from it in the fusion alone."""
    apart = told(PIECES, "h100-sxm", 4)
    fused = told(f"{PIECES} --cross-entropy-loss-fusion", "h100-sxm", 4)
    engine = told(f"{PIECES} --cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "h100-sxm", 4)
    logits = 4 * 1024 * 50_432 / 2
    more = (LOSSES["vocab-parallel-compiled"] - LOSSES["vocab-parallel"]) * logits / GiB
    assert more == pytest.approx(measured, rel=0.15)
    last = [memory.stages[-1] for memory in (engine, apart, fused)]
    assert float(last[2].parts.logits - last[1].parts.logits) / GiB == pytest.approx(more, rel=0.01)
    assert float(last[0].parts.logits) < float(last[1].parts.logits)


SIMPLE = Transformer(
    name="simple", layers=32, hidden=4096, heads=32, vocabulary=50_000, feed_forward=16_384, gated=False, norm="layernorm",
    attention_bias=True, output_bias=True, feed_forward_bias=True, learned_positions=512, dropout=False,
)  # fmt: skip
IN_16_BIT = {"bf16_master_weights_and_grads": "true", "bf16_optimizer_states": "true"}


@pytest.mark.parametrize(("narrow", "between_steps", "peak"), [(False, 25.74, 31.38), (True, 16.17, 18.93)])
def test_deepspeeds_states_in_16_bit_take_what_its_example_says(narrow, between_steps, peak):
    """deepspeedai/DeepSpeedExamples@ac3800b7 training/bf16_master_weight/README.md: 6.86 B parameters on 4 GPUs, recomputed."""
    more = "".join(f', "{name}": {value}' for name, value in IN_16_BIT.items()) if narrow else ""
    text = f"""{{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "bf16": {{"enabled": true{more}}},
               "zero_optimization": {{"stage": 3}}}}"""
    launch = read_launch(text, gpus=4, settings={"seq_len": 512, "recompute": "full"})
    memory = estimate(SIMPLE, machine("a100-sxm-80gb", gpus=4), launch.plan, launch.software).memory
    assert (memory.weights + memory.gradients + memory.optimizer) / GiB == pytest.approx(between_steps, rel=0.02)
    assert memory.allocated / GiB == pytest.approx(peak, rel=0.05)


MOONLIGHT = (
    "moonlight-16b-a3b", "--cluster", "dgx-h100", "--gpus", "8", "--framework", "nemo", "--gbs", "4", "--seq-len", "4096",
    "--tp", "2", "--ep", "8", "--optimizer", "adam-bf16-moments", "--loss", "fused",
)  # fmt: skip
LLAMA = (
    "llama3-70b", "--cluster", "dgx-h100", "--gpus", "32", "--framework", "nemo", "--gbs", "32", "--seq-len", "4096", "--tp", "4",
    "--pp", "4", "--vp", "5", "--dtype", "fp8",
)  # fmt: skip
QWEN = (
    "qwen3-30b-a3b", "--cluster", "dgx-h100", "--gpus", "16", "--framework", "nemo", "--gbs", "1024", "--seq-len", "4096",
    "--ep", "16", "--loss", "fused",
)  # fmt: skip
BRIDGE = {
    "moonlight": ((*MOONLIGHT,), 36.618),
    "moonlight-activation": ((*MOONLIGHT, "--recompute", "expert-activation"), 35.941),
    "moonlight-latent": ((*MOONLIGHT, "--recompute", "latent-projections"), 35.902),
    "moonlight-norms": ((*MOONLIGHT, "--recompute", "norms+expert-activation"), 35.949),
    "qwen": ((*QWEN,), 61.351),
    "llama-mlp": ((*LLAMA, "--recompute", "mlp"), 55.6),
}


@pytest.mark.parametrize(("question", "published"), BRIDGE.values(), ids=BRIDGE)
def test_megatron_bridge_allocates_what_its_study_of_recomputation_says(run, question, published):
    """NVIDIA-NeMo/Megatron-Bridge@067f987d skills/nemo-mbridge-perf-activation-recompute/SKILL.md, in 10^9 bytes; Moonlight's
    recipe has moments in bf16 and Transformer Engine's loss (src/megatron/bridge/recipes/moonlight/h100/moonlight_16b.py). Qwen3
    on one tensor rank: docs/training/moe-optimization.md, recipes/qwen/h100/qwen3_moe.py."""
    assert tensors(asked(run, *question)) == pytest.approx(published * GB, rel=0.1)


HUGGING_FACE = (
    "--framework", "hf-trainer@2023-06", "--adapter", "qlora", "--lora-rank", "64", "--paged-optimizer", "yes", "--recompute",
    "full", "--attention", "flash", "--gbs", "16", "--micro-batch", "1", "--seq-len", "528",
)  # fmt: skip


@pytest.mark.parametrize(("model", "tokens", "memory"), [
    ("llama3.1-8b", 932, 12), ("llama3.1-8b", 2551, 16), ("llama3.1-8b", 5789, 24), ("llama3.1-8b", 12264, 40),
    ("llama3.1-8b", 15502, 48), ("llama3.1-8b", 28454, 80), ("llama3-70b", 6916, 80),
])  # fmt: skip
def test_the_longest_sequences_beside_unsloths_fill_the_gpu(model, tokens, memory):
    """https://docs.unsloth.ai/basics/unsloth-benchmarks, "Hugging Face + FA2": QLoRA of rank 32 on every matrix."""
    shape = dataclasses.replace(load_model(model), trained_length=None)
    found = estimate(
        shape, load_cluster("dgx-a100", 1), framework="hf-trainer", adapter="qlora", lora_rank=32, recompute="full",
        attention="flash", optimizer="adam-8bit", global_batch=1, seq_len=tokens,
    )  # fmt: skip
    assert found.memory.total / GiB == pytest.approx(memory, rel=0.1)


@pytest.mark.parametrize(("model", "device"), [("llama-65b", "rtx-a6000"), ("llama-33b", "rtx-4090")])
def test_qlora_fits_where_its_authors_trained(run, model, device):
    """artidoro/qlora@7f4e95a6 README.md and scripts/finetune_guanaco_{65b,33b}.sh: 65 B on 48 GB, 33 B on 24."""
    assert asked(run, model, "--device", device, *HUGGING_FACE)["fits"]


FOUNDRY = """
max_seq_len: 4096
model:
  name: hf_causal_lm
  pretrained_model_name_or_path: meta-llama/Llama-3.1-70B-Instruct
  use_flash_attention_2: true
optimizer:
  name: decoupled_lionw
global_train_batch_size: 16
device_train_microbatch_size: 1
precision: amp_bf16
fsdp_config:
  sharding_strategy: FULL_SHARD
  mixed_precision: PURE
  activation_checkpointing: true
  activation_checkpointing_reentrant: false
"""


@pytest.mark.parametrize(("gpus", "fits"), [(8, False), (16, True)])
def test_a_full_fine_tune_of_70b_by_llm_foundry_takes_sixteen_gpus_of_80_gb(gpus, fits):
    """mosaicml/llm-foundry@8c8dd48f mcli/mcli-llama3-70b-instruct-finetune.yaml: "at least 16x80GB GPUs"."""
    launch = read_launch(FOUNDRY, gpus=gpus)
    assert estimate(launch.model, machine("h100-sxm", gpus=gpus), launch.plan, launch.software).fits is fits


def test_a_quantised_base_is_lifted_by_peft_alone_and_only_where_nothing_is_sharded():
    """hiyouga/LLaMA-Factory, axolotl, ms-swift and TRL from 0.26 leave norms, embedding and head in 16 bit."""
    cluster, model = load_cluster("dgx-h100", gpus=8), load_model("llama3-8b")
    sizes = {"global_batch": 8, "seq_len": 2048, "adapter": "qlora", "recompute": "full"}
    lifted, cast, whole = (
        estimate(model, cluster, framework="hf-trainer", zero_stage=stage, **sizes).memory for stage in (0, 2, 3)
    )  # fmt: skip
    left, left_2 = (
        estimate(model, cluster, framework="hf-trainer", zero_stage=stage, wide_residual=False, **sizes).memory
        for stage in (0, 2)
    )  # fmt: skip
    assert cast.total == left_2.total  # by DeepSpeed's engine
    edges = 2 * model.vocabulary * model.hidden
    assert lifted.weights - left.weights == pytest.approx(2.0 * edges, rel=0.01)
    assert lifted.activations == pytest.approx(2.0 * left.activations) and whole.activations == left.activations
    for name, wide in (("trl", False), ("trl@2025.11", True), ("trl@2026.3", False), ("hf-trainer", True), ("hf-fsdp", False)):
        assert Plan(**sizes).resolve(load_framework(name)).wide_residual is wide
