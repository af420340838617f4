"""Launch files as frameworks ship them and users write them: what each framework's own code does with them."""

import pytest

from costmodel import estimate, load_cluster, load_framework, machine
from costmodel.interop.launchers import read_launch, resolve
from costmodel.interop.launchers.advice import in_samples
from costmodel.interop.launchers.preferences import whole_step
from costmodel.interop.launchers.pricing import software_of
from costmodel.text.errors import CostModelError, NotModelled

TRAINED = "model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 1\nbf16: true\n"
SCRIPT = """torchrun --nproc_per_node 8 %s --model_name_or_path meta-llama/Llama-3.1-8B --bf16 True
    --per_device_train_batch_size 2 --model_max_length 2048 --data_path data.json %s"""
AXOLOTL = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\nmicro_batch_size: 2\nval_set_size: 0.1\nnum_epochs: 1\n"
FACTORY = f"{TRAINED}stage: %s\nfinetuning_type: %s\ncutoff_len: 2048\ntemplate: llama3\n"
VERSION_1 = "model: Qwen/Qwen3-4B\nmodel_class: llm\nmicro_batch_size: 1\ncutoff_len: 2048\n"
TUNE = """model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
tokenizer:
  max_seq_len: 2048
batch_size: 2
dtype: bf16
optimizer:
  _component_: torch.optim.AdamW
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
"""
TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
data_parallel_shard_degree = 8
"""
REGISTRY = "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b %s"


def plan(text, gpus=8, **settings):
    return read_launch(text, gpus=gpus, settings=settings).plan


def notes(text, **settings):
    return " ".join(read_launch(text, gpus=8, settings=settings).notes)


# What is offloaded


@pytest.mark.parametrize("text", [
    f"{AXOLOTL}fsdp: [full_shard]\nfsdp_config:\n  fsdp_offload_params: true\n", f"{TUNE}fsdp_cpu_offload: true\n",
    f"{TRAINED}max_length: 2048\nfsdp: full_shard\nfsdp_config:\n  cpu_offload: true\n",
], ids=["axolotl", "torchtune", "trl"])  # fmt: skip
def test_what_fsdp_offloads_is_the_optimizer_too(text):
    """pytorch/pytorch torch/distributed/fsdp/api.py ``CPUOffload``: "the gradients will be offloaded to CPU as well, and
    the optimizer step runs on CPU"."""
    read = plan(text)
    assert (read.parameter_offload, read.optimizer_offload) == (1.0, 1.0)
    launch = read_launch(text, gpus=8)
    found = estimate(launch.model, load_cluster("dgx-h100", gpus=8), read, launch.software).memory
    assert (found.weights, found.optimizer) == (0.0, 0.0)


def test_an_offload_that_a_name_says_stands_beside_that_of_activations():
    text = f"{AXOLOTL}activation_offloading: true\ngradient_checkpointing: true\ndeepspeed: zero3_bf16_cpuoffload_all.json\n"
    read = plan(text)
    assert (read.parameter_offload, read.optimizer_offload, read.activation_offload) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(("adapter", "recompute"), [("", "full"), ("adapter: lora\nlora_r: 8\n", "none")])
def test_axolotls_offload_of_activations_takes_the_place_of_recomputation_beside_adapters(adapter, recompute):
    """axolotl-ai-cloud/axolotl@067b021c8 src/axolotl/loaders/model.py ``_apply_activation_checkpointing``."""
    assert plan(f"{AXOLOTL}{adapter}gradient_checkpointing: true\nactivation_offloading: true\n").recompute == recompute


# What is frozen, and in how many bits


@pytest.mark.parametrize(("name", "adapter"), [
    ("TechxGenus/Meta-Llama-3-8B-Instruct-GPTQ", "gptq-lora"), ("casperhansen/llama-3-8b-instruct-awq", "gptq-lora"),
    ("unsloth/llama-3-8b-bnb-4bit", "qlora"), ("meta-llama/Meta-Llama-3-8B", "lora"),
])  # fmt: skip
def test_adapters_over_a_quantised_checkpoint_are_over_its_bits(name, adapter):
    """hiyouga/LLaMA-Factory@ff6d4d12e examples/train_qlora/llama3_lora_sft_gptq.yaml: no key but the name says so."""
    text = (FACTORY % ("sft", "lora")).replace("meta-llama/Llama-3.1-8B", name)
    assert plan(text).adapter == adapter


@pytest.mark.parametrize(("flags", "adapter"), [
    ("--use_peft_lora True --use_4bit_quantization True --lora_r 8", "qlora"), ("--use_lora True --q_lora True", "qlora"),
    ("--use_peft_lora True --use_8bit_quantization True", "int8-lora"), ("--lora_enable True --lora_r 128", "lora"),
    ("--lora_enable True --bits 4", "qlora"), ("--use_peft false --lora_r 16", "none"), ("--use_lora True", "lora"),
])  # fmt: skip
def test_switches_of_adapters_of_much_copied_scripts(flags, adapter):
    """huggingface/peft@5d602fdb examples/sft/utils.py; QwenLM/Qwen@2df8e8a finetune.py; haotian-liu/LLaVA@c121f04
    llava/train/train.py; huggingface/trl@v1.15.0 trl/trainer/utils.py ``get_peft_config``: nothing unless ``use_peft``."""
    read = plan(SCRIPT % ("train.py", flags))
    assert read.adapter == adapter and (read.loss is None or "use_peft " in flags)


@pytest.mark.parametrize("name", ["galore", "apollo", "badam", "adam_mini"])
def test_a_switch_of_an_optimizer_that_is_unlike_adam_is_refused_by_name(name):
    with pytest.raises(NotModelled, match=name):
        resolve(read_launch((FACTORY % ("sft", "full")) + f"use_{name}: true\n", gpus=8))


def test_narrow_states_of_torchao_are_not_those_of_adam():
    read = plan(f"{AXOLOTL}optimizer: adamw_torch_4bit\n")
    assert read.optimizer == "adam-8bit"


# Preferences


@pytest.mark.parametrize(("text", "paired", "referred"), [
    (FACTORY % ("dpo", "full"), True, True), (FACTORY % ("dpo", "lora"), True, True), (FACTORY % ("kto", "full"), False, True),
    (FACTORY % ("dpo", "full") + "pref_loss: simpo\n", True, False), (FACTORY % ("sft", "full"), False, False),
    (f"{AXOLOTL}rl: dpo\n", True, True), (f"{AXOLOTL}rl: orpo\n", True, False), (f"{AXOLOTL}reward_model: true\n", True, False),
    ("swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B --tuner_type full --max_length 2048", True, True),
    (TUNE.replace("LinearCrossEntropyLoss", "DPOLoss"), True, True),
    (SCRIPT % ("scripts/run_dpo.py", "--beta 0.1"), True, True),
    (SCRIPT % ("scripts/run_simpo.py", "--beta 2 --gamma_beta_ratio 0.5"), True, False),
])  # fmt: skip
def test_a_trainer_by_preferences_says_pairs_and_its_reference(text, paired, referred):
    launch = read_launch(text, gpus=8)
    fields = launch.plan_fields
    assert (bool(fields.get("paired")), bool(fields.get("referred"))) == (paired, referred)
    assert ("a pair of sequences" in notes(text), "a reference passes" in notes(text)) == (paired, referred)
    assert resolve(launch).algorithm == (("dpo" if paired else "kto") if referred else None)


DPO = (FACTORY % ("dpo", "full")) + "deepspeed: ds_z3.json\ndisable_gradient_checkpointing: true\n"


def test_pairs_are_twice_the_sequences_and_the_reference_is_a_pass_and_its_weights():
    """A forward pass is a third of forward and backward; 16-bit weights of eight ranks at ZeRO-3 are a quarter of a byte of each
    parameter: trl/trainer/dpo_trainer.py at 1.10, ``prepare_deepspeed``."""
    launch = read_launch(DPO, gpus=8)
    alone = resolve(read_launch(DPO.replace("stage: dpo", "stage: sft"), gpus=8)).plan
    priced = resolve(launch)
    assert (priced.plan.micro_batch, priced.plan.global_batch) == (2 * alone.micro_batch, 2 * alone.global_batch)
    update = estimate(priced.model, machine("h100", gpus=8), priced.plan, priced.software)
    whole = whole_step(priced, update)
    assert whole.times["updates"] == pytest.approx(update.step_time, rel=1e-9)
    passes = update.times["forward"] + update.times["backward"]
    assert whole.times["reference"] == pytest.approx(passes / 3.0, rel=0.1)
    assert whole.beside == pytest.approx(priced.model.parameters / 4.0, rel=0.02)
    assert whole.memory == pytest.approx(float(update.memory.total) + whole.beside)


def test_of_kto_the_reference_passes_twice_and_the_policy_once_more_over_answers_of_other_samples():
    """Five passes that count as forward, of which three make no gradients: huggingface/trl@f2cd5771 trl/trainer/kto_trainer.py
    ``_compute_loss``: ``compute_ref_log_probs`` of two inputs, ``_compute_kl_logps``, and the pass with gradients."""
    priced = resolve(read_launch(DPO.replace("stage: dpo", "stage: kto"), gpus=8))
    update = estimate(priced.model, machine("h100", gpus=8), priced.plan, priced.software)
    whole = whole_step(priced, update)
    passes = update.times["forward"] + update.times["backward"]
    assert whole.times["updates"] == pytest.approx(update.step_time, rel=1e-9)
    assert 0.25 < whole.times["log probabilities"] / passes < 0.4  # a third of the FLOP
    assert whole.times["reference"] == pytest.approx(2.0 * whole.times["log probabilities"])
    assert whole.beside == pytest.approx(priced.model.parameters / 4.0, rel=0.02)
    before = resolve(read_launch(DPO.replace("stage: dpo", "stage: kto") + "precompute_ref_log_probs: true\n", gpus=8))
    assert before.algorithm is None


def test_beside_adapters_the_reference_has_no_weights_and_what_is_computed_before_no_pass():
    adapted = resolve(read_launch(DPO.replace("type: full", "type: lora"), gpus=8))
    update = estimate(adapted.model, machine("h100", gpus=8), adapted.plan, adapted.software)
    assert whole_step(adapted, update).beside == 0.0 and whole_step(adapted, update).times["reference"] > 0.0
    before = resolve(read_launch(f"{DPO}precompute_ref_log_probs: true\n", gpus=8))
    assert before.algorithm is None and before.plan.global_batch == adapted.plan.global_batch


def test_flags_of_advice_count_pairs_as_the_file_does():
    launch = read_launch(DPO, gpus=8)
    plan = resolve(launch).plan
    assert in_samples(launch, plan).micro_batch == launch.plan_fields["micro_batch"] == plan.micro_batch // 2


# Scripts of others


def test_a_file_of_whose_keys_the_nearest_framework_knows_few_is_refused_by_name():
    """Lightning-AI/litgpt's ``train.global_batch_size`` is Megatron-Bridge's key, too."""
    matrices = "query", "key", "value", "projection", "mlp", "head", "r", "alpha", "dropout"
    keys = "checkpoint_dir: x\nquantize: bnb.nf4\nlogger_name: csv\n" + "".join(f"lora_{name}: true\n" for name in matrices)
    with pytest.raises(CostModelError, match="no known framework's launch file: of its 14 keys the nearest"):
        read_launch(f"{keys}train:\n  global_batch_size: 8\n  micro_batch_size: 2\n")


def test_deepspeed_chat_trains_in_fp16_with_adapters_of_every_matrix():
    """microsoft/DeepSpeedExamples@83757d9c applications/DeepSpeed-Chat/training/step1_supervised_finetuning/main.py."""
    text = "deepspeed main.py --data_split 2,4,4 --model_name_or_path facebook/opt-1.3b --per_device_train_batch_size 4 "
    text += "--max_seq_len 512 --lora_dim 128 --lora_module_name decoder.layers. --zero_stage 3"
    read = plan(text)
    assert (read.dtype, read.lora_rank, read.zero_stage) == ("fp16", 128, 3)
    assert read.lora_targets == plan(SCRIPT % ("llava/train/train_mem.py", "--lora_enable True --lora_r 128")).lora_targets
    assert "gate" in read.lora_targets


def test_deepspeed_chats_offload_is_of_weights_and_states():
    text = "deepspeed main.py --data_split 2,4,4 --model_name_or_path facebook/opt-1.3b --max_seq_len 512 "
    text += "--zero_stage 3 --offload"
    assert (plan(text).optimizer_offload, plan(text).parameter_offload) == (1.0, 1.0)


def test_neoxs_preferences_are_pairs_with_a_reference():
    """EleutherAI/gpt-neox@main megatron/training.py ``forward_step``, ``train_impl``."""
    text = "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 128\nmodel_parallel_size: 1\n"
    text += "train_micro_batch_size_per_gpu: 3\npos_emb: rotary\ntrain_impl: "
    assert [plan(text + method).micro_batch for method in ("normal", "dpo", "rm")] == [3, 6, 6]
    assert resolve(read_launch(f"{text}dpo", gpus=8)).algorithm == "dpo"


def test_neoxs_expansion_is_the_width_where_none_is_said():
    text = "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 128\nmodel_parallel_size: 1\n"
    assert read_launch(f"{text}expansion_factor: 2\ntrain_micro_batch_size_per_gpu: 1\n", gpus=8).model.feed_forward == 128


def test_a_job_of_mosaicmls_platform_holds_a_files_keys():
    inner = "max_seq_len: 2048\n  model:\n    name: hf_causal_lm\n    pretrained_model_name_or_path: meta-llama/Llama-3.1-8B\n"
    inner += "  global_train_batch_size: 32\n  device_train_microbatch_size: 1\n  precision: amp_bf16\n  max_duration: 1ep\n"
    launch = read_launch(f"name: x\nimage: y\ncompute:\n  gpus: 16\nparameters:\n  {inner}")
    assert (launch.framework, launch.gpus, launch.model.name) == ("llm-foundry", 16, "llama3.1-8b")


def test_flags_that_a_script_takes_itself_are_none_of_the_program(tmp_path):
    file = tmp_path / "run.sh"
    body = 'while [[ "$1" != "" ]]; do\n  case $1 in\n    -m | --model )\n      M=$2 ;;\n    --data) D=$2 ;;\n  esac\ndone\n'
    file.write_text(f"#!/bin/bash\n{body}{SCRIPT % ('train.py', '')}".replace("\n    --per", " --per"), encoding="utf-8")
    assert not set(read_launch(file).unknown) & {"--model", "--data"}


def test_the_program_behind_accelerates_processes_is_no_unknown_flag():
    text = "accelerate launch --num_processes 2 train/dpo.py --model_name_or_path Qwen/Qwen3-8B --max_length 1024 --bf16 True"
    launch = read_launch(f"{text} --per_device_train_batch_size 1 --dataset_name a/b")
    assert launch.gpus == 2 and not launch.unknown and launch.plan_fields["paired"]


MEGATRON = "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 512 --micro-batch-size 4 "
MEGATRON += "--global-batch-size 64"


def test_megatrons_scripts_say_the_kind_of_model():
    with pytest.raises(NotModelled, match="encoder-decoder"):
        resolve(read_launch(f"torchrun --nproc_per_node 8 pretrain_t5.py {MEGATRON}"))
    assert not read_launch(f"torchrun --nproc_per_node 8 pretrain_bert.py {MEGATRON}").model.causal
    assert read_launch(f"torchrun --nproc_per_node 8 pretrain_gpt.py {MEGATRON}").model.causal


def test_a_tokenizer_that_is_a_models_says_the_vocabulary():
    text = f"torchrun --nproc_per_node 8 pretrain_gpt.py {MEGATRON} --tokenizer-type HuggingFaceTokenizer --tokenizer-model "
    assert read_launch(f"{text}meta-llama/Llama-3.1-70B").model.vocabulary == 128_256
    assert read_launch(f"{text}$TOKENIZER").model.vocabulary == 50_304
    assert read_launch(f"{text}meta-llama/Llama-3.1-70B --vocab-size 1000").model.vocabulary == 1000


@pytest.mark.parametrize(("lines", "gpus"), [
    ("#SBATCH --nodes=16 --exclusive --ntasks-per-node=8 --job-name=x", 128), ("#SBATCH -N 4\n#SBATCH --ntasks-per-node=8", 32),
    ("#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1", None), ("#SBATCH -N 2 --gpus-per-node=4 --ntasks-per-node=1", 8),
])  # fmt: skip
def test_tasks_of_a_job_are_processes_where_a_node_has_several(tmp_path, lines, gpus):
    file = tmp_path / "job.sh"
    file.write_text(f"#!/bin/bash\n{lines}\nsrun python pretrain_gpt.py {MEGATRON}\n", encoding="utf-8")
    assert read_launch(file).gpus == gpus


def test_a_key_that_is_null_first_is_what_it_is_then():
    assert plan(f"{AXOLOTL}optimizer: null\noptimizer: adamw_bnb_8bit\n").optimizer == "adam-8bit"


# Releases


def test_the_trainers_fsdp_is_the_second_unless_keys_are_older():
    """huggingface/transformers v5.10.1 src/transformers/training_args.py: ``self.fsdp_config.get("version", 2)``; v5.9.0 has
    1; ``fsdp_transformer_layer_cls_to_wrap`` is gone by v5.16.0."""
    now = f"{TRAINED}max_length: 2048\nfsdp: full_shard auto_wrap\n"
    for more, software in (
        ("", "hf-fsdp2"), ("fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n", "hf-fsdp"),
        ("fsdp_config:\n  version: 1\n", "hf-fsdp"), ("fsdp_config:\n  use_orig_params: true\n", "hf-fsdp"),
    ):  # fmt: skip
        assert software_of(read_launch(now + more, gpus=8)) == software
    assert software_of(read_launch(now.replace("full_shard", "hybrid_shard"), gpus=8)) == "hf-fsdp"


@pytest.mark.parametrize(("pinned", "software"), [
    ("# transformers==4.45.2\n", "hf-fsdp@2024-09"), ("# needs transformers == 5.9\n", "hf-fsdp@2026-05"),
    ("# transformers==5.12.1, accelerate==1.14\n", "hf-fsdp2@2026-06"), ("# transformers>=4.45\n", "hf-fsdp2"),
])  # fmt: skip
def test_a_release_that_a_file_pins_is_the_one_that_prices_it(pinned, software):
    """huggingface/transformers v5.10.1: FSDP2 where none is said; lists of tensors update until August 2025."""
    launch = read_launch(f"{pinned}{TRAINED}max_length: 2048\nfsdp: full_shard auto_wrap\n", gpus=8)
    assert launch.software == software
    assert (load_framework(launch.software).optimizer_kernel == "foreach") == ("2024" in software)
    assert estimate(launch.model, machine("h100", gpus=8), launch.plan, launch.software).step_time > 0.0


def test_what_a_script_installs_is_a_pin(tmp_path):
    """huggingface/trl@v0.22.0: recomputes unless it is told not to; @v1.7.0: logits tile by tile."""
    script = tmp_path / "train.sh"
    for release, recompute, loss in (("0.12.1", "none", None), ("1.0.0", "full", None), ("1.9.0", "full", "tiled")):
        script.write_text(
            f"#!/bin/bash\npip install trl=={release} datasets\ntrl sft --model_name_or_path Qwen/Qwen3-8B --dataset_name a/b "
            "--max_length 1024 --bf16 --per_device_train_batch_size 1\n", encoding="utf-8",
        )  # fmt: skip
        launch = read_launch(script, gpus=1)
        assert (launch.plan.recompute, launch.plan_fields.get("loss"), launch.version) == (recompute, loss, f"trl {release}")


def test_version_1_of_llama_factory_casts_by_what_shards_and_checkpoints_without_reentry():
    """hiyouga/LLaMA-Factory@ff6d4d12 src/llamafactory/v1/config/training_args.py (``bf16``), config/model_args.py
    (``flash_attn``), core/base_trainer.py, plugins/model_plugins/kernels/liger_kernel_ops.py (``require_logits``)."""
    sharded = f"{VERSION_1}dist_config:\n  name: fsdp2\n"
    read = plan(sharded)
    assert (read.dtype, read.attention, read.recompute, read.micro_batch) == ("bf16", "sdpa", "full", 1)
    assert plan(VERSION_1).dtype == "fp32" == plan(f"{sharded}bf16: false\n").dtype
    tuned = plan(f"{sharded}peft_config:\n  name: lora\n  r: 16\nkernel_config:\n  name: liger_kernel\n")
    assert (tuned.reentrant, tuned.fused_norms, tuned.fused_cross_entropy) == (False, True, None)
    assert plan(f"{sharded}batching_strategy: padding_free\n").batching == "padding-free"
    assert plan(f"{VERSION_1}dist_config:\n  name: fsdpturbo\n  ep_size: 8\n").expert_parallel == 8


@pytest.mark.parametrize(("lines", "recompute"), [
    ("enable_activation_checkpointing: true\n", "full"), ("enable_activation_checkpointing: false\n", "none"),
    ("enable_activation_checkpointing: false\nac_mode: full\n", "full"),
    ("enable_activation_checkpointing: false\nac_mode: selective\nac_option: 2\n", 2),
    ("enable_activation_checkpointing: true\nac_mode: selective\nac_option: 2\n", "none"),
])  # fmt: skip
def test_torchtunes_mode_of_checkpoints_rules_where_its_switch_is_off(lines, recompute):
    """meta-pytorch/torchtune@bd2a0fc recipes/full_finetune_distributed.py: ``if (not enable_activation_checkpointing) and
    (ac_mode is not None)``, then ``if enable_activation_checkpointing and ac_mode is None``."""
    assert plan(TUNE + lines).recompute == recompute


def test_torchtunes_tensor_parallelism_splits_sequences_between_regions():
    """meta-pytorch/torchtune@bd2a0fc torchtune/models/llama3/_parallelism.py: ``"layers.*.sa_norm": SequenceParallel()``."""
    assert plan(f"{TUNE}tensor_parallel_dim: 8\n").sequence_parallel is True
    assert plan(TUNE).sequence_parallel is False


@pytest.mark.parametrize(("lines", "recompute"), [
    ("", 2), ("[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = '3'\n", 3),
    ("[activation_checkpoint]\nselective_ac_option = 'op'\n", "operators"), ("[activation_checkpoint]\nmode = 'full'\n", "full"),
])  # fmt: skip
def test_torchtitans_selective_checkpoints_are_of_every_second_layer_unless_a_file_says_else(lines, recompute):
    """pytorch/torchtitan@2ea6197b9 torchtitan/config/job_config.py: ``mode = "selective"``, ``selective_ac_option = "2"``."""
    assert plan(TITAN + lines).recompute == recompute


def test_what_torchtitan_compiles_is_the_loss_and_the_layers():
    """pytorch/torchtitan@2ea6197b9 torchtitan/components/loss.py: ``"loss" in job_config.compile.components``."""
    both = plan(f"{TITAN}[compile]\nenable = true\n")
    assert (both.loss, both.fused_norms) == ("compiled", True)
    layers = plan(f"{TITAN}[compile]\nenable = true\ncomponents = ['model']\n")
    assert (layers.loss, layers.fused_norms) == (None, True)
    assert plan(f"{TITAN}[optimizer]\nearly_step_in_backward = true\n").update_in_backward is True


def test_a_run_of_torchtitans_registry_has_its_loss_and_asks_for_what_its_configuration_holds():
    """pytorch/torchtitan@b5bcd76 torchtitan/models/llama3/config_registry.py: ``loss=ChunkedLossWrapper.Config(...)``."""
    stated = REGISTRY % "--training.max_context_length 8192 --activation_checkpoint.mode full"
    with pytest.raises(CostModelError, match="global_batch"):
        read_launch(stated).plan  # noqa: B018
    read = read_launch(stated, settings={"micro_batch": "1"})
    assert (read.plan.loss, read.plan.recompute, read.model.name) == ("chunk-by-chunk", "full", "llama3-8b")


def test_megatron_of_ms_swift_recomputes_attention_and_fuses_the_loss_unless_it_is_told_not_to():
    """modelscope/ms-swift@3602360a5 swift/megatron/arguments/megatron_args.py."""
    text = """NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-7B --tuner_type full --max_length 2048 --dataset x
    --tensor_model_parallel_size 2 --sequence_parallel true --micro_batch_size 1 --global_batch_size 16 --train_iters 100 %s"""
    read = plan(text % "", gpus=8)
    assert (read.recompute, read.fused_cross_entropy, read.batching) == ("selective", True, "padding-free")
    adapted = text.replace("--tensor_model_parallel_size 2 --sequence_parallel true", "--lora_rank 8 --loss_scale hermes")
    assert read_launch(adapted % "--agent_template hermes --split_dataset_ratio 0.01").dialect == "megatron"
    told = plan(text % "--recompute_granularity none --cross_entropy_loss_fusion false --padding_free false", gpus=8)
    assert (told.recompute, told.fused_cross_entropy, told.batching) == ("none", False, "full")


# What starts the processes


@pytest.mark.parametrize(("flags", "said", "software"), [
    ("--mixed_precision bf16 --use_deepspeed --deepspeed_config_file ds/stage3_no_offload.conf", {"zero_stage": 3}, "deepspeed"),
    ("--mixed_precision bf16 --use_deepspeed --zero_stage 3 --offload_optimizer_device cpu",
     {"zero_stage": 3, "optimizer_offload": 1.0}, "deepspeed"),
    ("--mixed_precision bf16 --use_fsdp --fsdp_version 2 --fsdp_activation_checkpointing true",
     {"zero_stage": 3, "recompute": "full"}, "hf-fsdp2"),
    ("--mixed_precision bf16 --use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP --fsdp_offload_params true",
     {"zero_stage": 2, "optimizer_offload": 1.0}, "hf-fsdp"),
    ("--mixed_precision bf16 --multi_gpu", {"zero_stage": 0}, "hf-trainer"),
])  # fmt: skip
def test_flags_of_accelerate_launch_are_its_files_keys(flags, said, software):
    """allenai/open-instruct@e6c3044aa scripts/train/qwen/finetune_7b.sh; huggingface/accelerate@16cb6eb8
    src/accelerate/commands/launch.py."""
    rest = "finetune.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --max_seq_length 2048 --do_train"
    launch = read_launch(f"accelerate launch --num_processes 8 {flags} {rest}")
    found = {**launch.assumed, **{field: value for field, value in launch.plan_fields.items() if value is not None}}
    assert (launch.gpus, found["dtype"], software_of(launch)) == (8, "bf16", software)
    assert {field: found.get(field) for field in said} == said
    assert found.get("optimizer_offload") == said.get("optimizer_offload")


# What a shell makes of a script


def test_a_flag_that_a_variable_of_its_own_name_sets_keeps_its_value():
    """simplescaling/s1@77272c6 train/sft.sh; modelscope/ms-swift@3602360a5 examples/train/multi-node/torchrun."""
    script = ["#!/bin/bash", "per_device_train_batch_size=4", "nproc_per_node=8", "nnodes=2", ""]
    script += ["torchrun --nproc_per_node=$nproc_per_node \\"]
    script += ["    --nnodes=$nnodes train.py --model_name_or_path Qwen/Qwen3-8B \\"]
    script += ["    --per_device_train_batch_size=${per_device_train_batch_size} \\", "    --bf16 True"]
    launch = read_launch("\n".join(script))
    assert (launch.gpus, launch.plan_fields["micro_batch"]) == (16, 4)


def test_what_an_echo_says_over_several_lines_is_passed_over():
    """QwenLM/Qwen@2df8e8a finetune/finetune_ds.sh."""
    usage = "#!/bin/bash\nusage() {\n    echo '\nUsage: train.sh [-m MODEL]\n'\n}\n"
    text = usage + SCRIPT.replace("\n", " \\\n") % ("train.py", "")
    assert read_launch(text).plan_fields["micro_batch"] == 2


def test_a_word_that_holds_a_flag_and_its_value_is_split_as_an_array_without_quotation_marks_splits_it():
    """NVIDIA/Megatron-LM@d98e8a64 examples/llama/train_llama3_8b_h100_fp8.sh: ``${DTYPE_ARGS[@]}``."""
    text = "#!/bin/bash\nNNODES=${NNODES:-\"1\"}\nDTYPE_ARGS=(\n    \"--fp8-format hybrid\"\n    \"--vocab-size 128256\"\n)\n"
    text += "torchrun --nproc_per_node 8 --nnodes $NNODES pretrain_gpt.py --num-layers 32 --hidden-size 4096 \\\n"
    launch = read_launch(text + "    --num-attention-heads 32 --micro-batch-size 1 --bf16 ${DTYPE_ARGS[@]}\n")
    assert (launch.plan_fields["dtype"], launch.model_described["vocab_size"], launch.gpus) == ("fp8", 128256, 8)


def test_overrides_that_a_variable_holds_are_read_where_it_is_set():
    """NVIDIA-NeMo/Megatron-Bridge@067f987df examples/models/gpt_oss/slurm_peft.sh."""
    text = "#!/bin/bash\nCLI_OVERRIDES=\" \\\n    train.global_batch_size=16 \\\n    model.seq_length=2048\"\n"
    text += "CMD=\"python run_recipe.py --recipe gpt_oss_20b_peft_config $(echo \"$CLI_OVERRIDES\" | tr ' ' ' ')\"\n"
    said = read_launch(text).plan_fields
    assert (said["global_batch"], said["seq_len"]) == (16, 2048)
    added = "#!/bin/bash\nN=4\nCMD=(python run_recipe.py --recipe llama3_8b_pretrain_config)\n"
    added += "CMD+=(train.micro_batch_size=\"${N}\")\nE=\nCMD+=(optimizer.use_precision_aware_optimizer=\"${E}\")\n"
    assert read_launch(added).plan_fields["micro_batch"] == 4


def test_a_value_that_a_script_leaves_to_be_filled_in_is_asked_for():
    """hpcaitech/ColossalAI@4f9953be applications/ColossalChat/examples/training_scripts/train_sft.sh."""
    text = "#!/bin/bash\nMODEL_PATH=\"\"\ncolossalai run --nproc_per_node 4 train_sft.py --pretrain $MODEL_PATH \\\n"
    text += "    --plugin zero2 --batch_size 8 --max_len 4096 --mixed_precision bf16 --dataset x\n"
    with pytest.raises(CostModelError, match="MODEL_PATH"):
        resolve(read_launch(text))
    assert resolve(read_launch(text, settings={"MODEL_PATH": "llama2-7b"})).model.name == "llama2-7b"


@pytest.mark.parametrize(("named", "moved"), [
    ("zero3_bf16_cpuoffload_params.json", ["parameters"]), ("zero3_bf16_cpuoffload_all.json", ["optimizer", "parameters"]),
    ("zero3_bf16.json", []),
])  # fmt: skip
def test_the_name_of_a_configuration_says_what_it_offloads(named, moved):
    """axolotl-ai-cloud/axolotl@1377ccc deepspeed_configs: ``offload_param`` alone, both, none."""
    assert read_launch(f"{AXOLOTL}deepspeed: deepspeed_configs/{named}\n", gpus=8).plan_fields["offload"] == moved


@pytest.mark.parametrize(("lines", "words", "gpus"), [
    ("--nodes=4\n#SBATCH --gpus-per-node=4", "python pretrain_gpt.py --tensor-model-parallel-size $SLURM_GPUS_PER_NODE", 16),
    ("-N 2\n#SBATCH --gres=gpu:h100:8 # a node", "torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 pretrain_gpt.py", 8),
    ("-N4\n#SBATCH --gres=nvme:100,gpu:h100:8(S:0-1)", "python pretrain_gpt.py", 32),
    ("--nodes=2\n#SBATCH --gres=gpu:4,tmp:200", "python pretrain_gpt.py", 8),
    ("--nodes=1\n#SBATCH --gres=gpu:8\nexport NPROC_PER_NODE=4", "python pretrain_gpt.py", 4),
    ("--nodes=2\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-task=1", "python pretrain_gpt.py", 8),
    ("--job-name=one", "torchrun --nnodes 1 --nproc_per_node 8 pretrain_gpt.py", 8),
])  # fmt: skip
def test_a_job_of_slurm_says_its_sizes_where_no_flag_does(lines, words, gpus):
    """swiss-ai/pretrain-code@531cc8b long_context/training_scripts/70B/70b-8k.sh; Slurm's sbatch(1), "OUTPUT ENVIRONMENT
    VARIABLES"."""
    model = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --micro-batch-size 1 --seq-length 4096 --bf16"
    launch = read_launch(f"#!/bin/bash\n#SBATCH {lines}\nsrun {words} {model}\n")
    assert launch.gpus == gpus and not launch.unresolved


@pytest.mark.parametrize("flags", [
    "--tensor-model-parallel-size 2)", '"--tensor-model-parallel-size 2")', "--tensor-model-parallel-size 2 --bf16\n)",
    "--tensor-model-parallel-size 2\n  --bf16)", '--wandb-exp-name "a (b)" --tensor-model-parallel-size 2)',
])  # fmt: skip
def test_the_parenthesis_that_closes_a_list_is_not_of_its_last_word(flags):
    """GNU Bash's manual, 6.7 "Arrays": name=(value1 value2 ...)."""
    model = "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --micro-batch-size 1 --seq-length 4096 --bf16"
    launch = read_launch(f"#!/bin/bash\nARGS=({model} {flags}\ntorchrun --nproc_per_node 8 pretrain_gpt.py ${{ARGS[@]}}\n")
    found = launch.plan_fields
    assert (found["tensor_parallel"], found["dtype"], launch.gpus, launch.unknown) == (2, "bf16", 8, ())


def test_a_command_that_only_starts_processes_is_read_beside_the_file_that_it_names(tmp_path):
    """axolotl-ai-cloud/axolotl@067b021c8 examples/slurm/axolotl.slurm."""
    (tmp_path / "run.yaml").write_text(AXOLOTL)
    started = "#!/bin/bash\n#SBATCH --gpus-per-task=8\nsrun axolotl train run.yaml --launcher torchrun -- --nnodes=2 %s\n"
    (tmp_path / "run.slurm").write_text(started % "--nproc_per_node=$SLURM_GPUS_PER_TASK --rdzv_backend=c10d")
    for names in (("run.yaml", "run.slurm"), ("run.slurm", "run.yaml")):
        launch = read_launch([tmp_path / name for name in names])
        assert (launch.framework, launch.gpus, launch.plan_fields["seq_len"]) == ("axolotl", 16, 4096)
    with pytest.raises(CostModelError, match="no known framework"):
        read_launch(tmp_path / "run.slurm")


def test_a_hash_within_a_word_starts_no_comment():
    """modelscope/ms-swift@3602360a5 examples/megatron/lora/loss_scale.sh: all that comes after ``dataset#10000``."""
    text = "#!/bin/bash\nmegatron sft --model Qwen/Qwen2.5-7B --dataset some/set#10000 \\\n    --max_length 2048 # of all\n"
    assert read_launch(text).plan_fields["seq_len"] == 2048


@pytest.mark.parametrize(("command", "method", "tokens"), [
    ("swift rlhf", "grpo", 2048 + 1024), ("swift rlhf", "dpo", 2048),
    ("megatron rlhf --tensor_model_parallel_size 2", "grpo", 2048 + 1024), ("megatron rlhf", "dpo", 2048),
])  # fmt: skip
def test_max_length_of_ms_swift_is_the_prompts_where_completions_are_generated(command, method, tokens):
    """modelscope/ms-swift@3602360a5 docs/source_en/Instruction/Command-line-parameters.md: "In PPO, GRPO, GKD and inference
    scenarios, `max_length` refers to `max_prompt_length`"."""
    text = f"{command} --rlhf_type {method} --model Qwen/Qwen2.5-7B --max_length 2048 --max_completion_length 1024"
    assert read_launch(text, gpus=2).plan_fields["seq_len"] == tokens
