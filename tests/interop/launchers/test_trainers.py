"""Launch files of trainers: what they state is read and priced, what they name and don't give is said or asked for."""

import json

import pytest

from costmodel import Plan, estimate, load_cluster, load_model
from costmodel.interop.launchers import read_launch, resolve, write_launch
from costmodel.interop.launchers.advice import improvements
from costmodel.text.errors import CostModelError, IllegalPlan, NotModelled, UnreadableFile

TRAIN_SFT = """set -x

read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \\
   --max_len 4096 \\
   --dataset Open-Orca/OpenOrca \\
   --input_key question \\
   --output_key response \\
   --train_batch_size 256 \\
   --micro_train_batch_size 1 \\
   --pretrain meta-llama/Meta-Llama-3-8B \\
   --save_path ./checkpoint/llama3-8b-sft \\
   --zero_stage 2 \\
   --bf16 \\
   --flash_attn \\
   --adam_offload \\
   --learning_rate 5e-6 \\
   --packing_samples \\
   --gradient_checkpointing%s
EOF
    # --wandb [WANDB_TOKENS]

if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
"""
DOTTED = """deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --data.max_len 4096 --data.dataset Open-Orca/OpenOrca
--train.batch_size 256 --train.micro_batch_size 1 --model.model_name_or_path meta-llama/Meta-Llama-3-8B --ds.zero_stage 2
--ds.param_dtype bf16 --ds.attn_implementation flash_attention_2 --ds.adam_offload --adam.lr 5e-6 --ds.packing_samples
--model.gradient_checkpointing_enable --ckpt.output_dir out --logger.logging_steps 1 --eval.steps -1 %s"""


def written(folder, **files):
    """Files of a run in a folder, by their names with ``__`` for the dot."""
    paths = []
    for name, text in files.items():
        path = folder / name.replace("__", ".")
        path.write_text(text)
        paths.append(path)
    return paths


# OpenRLHF


@pytest.mark.parametrize("dotted", [False, True], ids=["plain", "dotted"])
def test_openrlhfs_trainer_is_read_as_it_is_stated(tmp_path, dotted):
    text = DOTTED % "" if dotted else TRAIN_SFT % ""
    launch = read_launch(written(tmp_path, train_sft__sh=text), gpus=8)
    said = launch.plan_fields
    assert (launch.framework, launch.dialect, launch.unknown) == ("openrlhf", "openrlhf", ())
    assert (said["micro_batch"], said["global_batch"], said["gradient_accumulation"]) == (1, 256, 32)
    assert (said["seq_len"], said["zero_stage"], said["dtype"], said["recompute"]) == (4096, 2, "bf16", "full")
    assert (said["attention"], said["offload"]) == ("flash", ["optimizer"])
    priced = resolve(launch)
    assert (priced.software, priced.model.name, priced.plan.optimizer_offload) == ("deepspeed", "llama3-8b", 1.0)


@pytest.mark.parametrize(("options", "field", "value"), [
    ("--lora_rank 64", "lora_rank", 64), ("--lora_rank 64", "adapter", "lora"), ("--lora_rank 0", "adapter", "none"),
    ("--load_in_4bit --lora_rank 8", "adapter", "qlora"),
    ("--lora_rank 8 --target_modules q_proj v_proj", "lora_targets", ("query", "value")),
    ("--ring_attn_size 2", "context_parallel", 2), ("--ring_attn_size 2", "context_communication", None),
    ("--ds_tensor_parallel_size 2", "tensor_parallel", 2), ("--use_liger_kernel", "fused_cross_entropy", True),
    ("--param_dtype bf16", "dtype", "bf16"), ("--overlap_comm", "overlap_gradients", True),
])  # fmt: skip
def test_openrlhfs_other_options_are_fields_of_the_plan(tmp_path, options, field, value):
    text = TRAIN_SFT % f" \\\n   {options}"
    launch = read_launch(written(tmp_path, train_sft__sh=text), gpus=8)
    assert getattr(launch.plan, field) == value and launch.unknown == ()


def test_what_openrlhf_splits_is_priced_by_the_entry_that_has_it(tmp_path):
    cluster = load_cluster("dgx-h100", gpus=8)
    for options, software in (("--ds_tensor_parallel_size 2", "deepspeed-autotp"), ("--ring_attn_size 2", "deepspeed-ulysses")):
        launch = read_launch(written(tmp_path, train_sft__sh=TRAIN_SFT % f" {options}"), gpus=8)
        assert launch.software == software
        assert estimate(launch.model, cluster, launch.plan, launch.software).step_time > 0
        assert launch.plan.data_parallel == 4  # DeepSpeed counts the others among its ranks, OpenRLHF's batch doesn't


@pytest.mark.parametrize(("script", "micro", "length", "note"), [
    ("openrlhf.cli.train_sft --zero_stage 3", 8, 2048, ""), ("openrlhf.cli.train_dpo --zero_stage 3 --beta 0.1", 8, 512, "pair"),
    ("openrlhf.cli.train_rm --zero_stage 3 --chosen_key chosen", 1, 512, "pair"),
    ("openrlhf.cli.train_ppo_ray --actor_num_nodes 2 --actor_num_gpus_per_node 8 --micro_rollout_batch_size 4 --zero_stage 3",
     1, 2048, "completions of 1024, prompts of 1024, which no file says"),
    ("openrlhf.cli.train_ppo_ray --actor_num_nodes 2 --prompt_max_len 512 --generate_max_len 3072 --zero_stage 3",
     1, 3584, "generates"),
])  # fmt: skip
def test_each_of_openrlhfs_trainers_has_its_own_defaults(script, micro, length, note):
    launch = read_launch(f"deepspeed --module {script} --pretrain meta-llama/Meta-Llama-3-8B --save_path out --packing_samples\n")
    assert launch.framework == "openrlhf"
    assert (launch.assumed["micro_batch"], launch.assumed["seq_len"]) == (micro, length)
    assert note in " ".join(launch.notes)
    assert launch.gpus == (16 if "ppo" in script else None)


# LoRA

LLAMA_FACTORY = """model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
do_train: true
finetuning_type: lora
%s
dataset: identity
template: llama3
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
bf16: true
"""
TRL = ("model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 2\nmax_length: 2048\nbf16: true\n"
       "use_peft: true\n")  # fmt: skip
AXOLOTL = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\nmicro_batch_size: 2\nadapter: lora\n"
TUNE = ("model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n"
        "  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']\n  apply_lora_to_mlp: %s\n  lora_rank: 8\n  lora_alpha: 16\n"
        "tokenizer:\n  max_seq_len: 2048\nbatch_size: 2\ndtype: bf16\n")  # fmt: skip
FOUNDRY = ("max_seq_len: 2048\nglobal_train_batch_size: 64\ndevice_train_microbatch_size: 2\nprecision: amp_bf16\nmodel:\n"
           "  name: hf_causal_lm\n  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B\n  peft_config:\n    peft_type: LORA\n"
           "    r: 64\n    target_modules: [q_proj, v_proj]\n")  # fmt: skip
SWIFT = ("--model Qwen/Qwen2.5-7B-Instruct\n--load_safetensors true\n--tuner_type lora\n--lora_rank 32\n"
         "--target_modules all-linear\n--micro_batch_size 2\n"
         "--global_batch_size 16\n--max_length 2048\n--tensor_model_parallel_size 1\n")  # fmt: skip
EVERY = ("query", "key", "value", "output", "gate", "up", "down")


@pytest.mark.parametrize(("text", "rank", "targets"), [
    (LLAMA_FACTORY % "lora_rank: 64\nlora_target: q_proj,v_proj", 64, ("query", "value")),
    (LLAMA_FACTORY % "lora_rank: 64\nlora_target: all", 64, EVERY), (LLAMA_FACTORY % "lora_target: all", 8, EVERY),
    (TRL + "lora_r: 32\nlora_target_modules: [q_proj, k_proj]\n", 32, ("query", "key")),
    (TRL + "lora_r: 32\nlora_target_modules: all-linear\n", 32, EVERY), (TRL, 16, ("query", "value")),
    (AXOLOTL + "lora_r: 32\nlora_target_linear: true\n", 32, EVERY),
    (AXOLOTL + "lora_r: 4\nlora_target_modules:\n  - gate_proj\n  - down_proj\n", 4, ("gate", "down")),
    (TUNE % "True", 8, ("query", "value", "output", "gate", "up", "down")), (TUNE % "False", 8, ("query", "value", "output")),
    (FOUNDRY, 64, ("query", "value")), (SWIFT, 32, EVERY),
], ids=range(12))  # fmt: skip
def test_rank_and_targets_of_adapters_are_those_that_a_file_states(text, rank, targets):
    launch = read_launch(text, gpus=8)
    plan = launch.plan
    assert (plan.adapter, plan.lora_rank, plan.lora_targets) == ("lora", rank, targets)
    assert not [flag for flag in (*launch.unpriced, *launch.irrelevant) if "lora_r" in flag or "target" in flag]


def test_a_larger_rank_takes_more_memory_and_other_modules_are_named():
    cluster = load_cluster("dgx-h100", gpus=8)
    held = [
        estimate(launch.model, cluster, launch.plan, launch.software).memory.total
        for launch in (read_launch(TRL + f"lora_r: {rank}\n", gpus=8) for rank in (8, 256))
    ]
    assert held[0] < held[1]
    pattern = read_launch(AXOLOTL + "lora_r: 8\nlora_target_modules: 'layers.[\\d]+.(mlp|self_attn).(up|down)_proj'\n", gpus=8)
    assert any("not modelled" in note for note in pattern.notes) and pattern.plan.lora_targets is None
    odd = read_launch(TRL + "lora_target_modules: [q_proj, Wunder]\n", gpus=8)
    assert any("Wunder" in note for note in odd.notes) and odd.plan.lora_targets is None


# What is named and not given


@pytest.mark.parametrize(("name", "stage", "offloaded"), [
    ("examples/deepspeed/ds_z3_config.json", 3, []), ("ds_z2_config.json", 2, []),
    ("ds_z2_offload_config.json", 2, ["optimizer"]),
    ("configs/zero1.json", 1, []), ("deepspeed_zero3.json", 3, []), ("ds_config_zero_2.json", 2, []), ("stage-3.json", 3, []),
    ("zero_stage2_config.json", 2, []), ("z0.json", 0, []),
])  # fmt: skip
def test_a_stage_is_read_off_a_files_name_and_that_is_said(name, stage, offloaded):
    launch = read_launch(LLAMA_FACTORY % f"deepspeed: {name}", gpus=8)
    assert launch.assumed["zero_stage"] == launch.plan.zero_stage == stage
    assert launch.plan_fields["offload"] == offloaded and launch.plan.optimizer_offload == (1.0 if offloaded else 0.0)
    assert any(name in note and f"stage {stage}" in note and "not given" in note for note in launch.notes)


@pytest.mark.parametrize("name", ["ds.json", "config/deepspeed.json", "a100_fp16.json", "gpt3.json", "z13.json"])
def test_a_stage_that_nothing_says_is_asked_for(name):
    launch = read_launch(LLAMA_FACTORY % f"deepspeed: {name}", gpus=8)
    assert launch.plan_fields["zero_stage"] is None
    with pytest.raises(CostModelError, match=rf"{name}, which was not given: zero_stage is not known; .*{{'zero_stage': N}}"):
        resolve(launch)
    settled = read_launch(LLAMA_FACTORY % f"deepspeed: {name}", gpus=8, settings={"zero_stage": "2"})
    assert settled.plan.zero_stage == 2


def test_parameters_that_a_name_says_are_offloaded_lie_on_the_host():
    found = resolve(read_launch(LLAMA_FACTORY % "deepspeed: ds_z3_offload_config.json", gpus=8))
    assert (found.plan.parameter_offload, found.plan.optimizer_offload, found.plan.zero_stage) == (1.0, 1.0, 3)


@pytest.mark.parametrize("given", ["ds_z3_config.json", "mine.json"])
def test_a_file_that_was_given_is_never_said_to_be_missing(tmp_path, given):
    config = json.dumps({"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"})
    trainer = LLAMA_FACTORY % "deepspeed: examples/deepspeed/ds_z3_config.json"
    files = written(tmp_path, run__yaml=trainer, **{given.replace(".", "__"): config})
    launch = read_launch(files, gpus=8)
    assert launch.plan.zero_stage == 2 and "zero_stage" not in launch.assumed and launch.missing == {}
    assert not any("not given" in note or "not opened" in note for note in launch.notes)
    assert any("mine.json was given" in note for note in launch.notes) == (given == "mine.json")


@pytest.mark.parametrize("flag", ["--config_file recipes/zero3.yaml", "--config_file ds_zero2.yaml"])
def test_accelerates_own_file_is_asked_for_or_read_off_its_name(flag):
    launch = read_launch(f"accelerate launch --num_processes 8 {flag} sft.py --model_name_or_path meta-llama/Llama-3.1-8B "
                         "--per_device_train_batch_size 4 --max_length 2048 --bf16 --dataset_name x")  # fmt: skip
    assert launch.plan.zero_stage == int(flag.rpartition("zero")[2][0])
    plain = read_launch(
        "accelerate launch --num_processes 8 --config_file mine.yaml sft.py --bf16 --dataset_name x --max_length 2048 "
        "--model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 4"
    )
    with pytest.raises(CostModelError, match=r"mine\.yaml, which was not given"):
        plain.plan  # noqa: B018


MEGATRON = ("--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 4 "
            "--global-batch-size 256 --bf16 --deepspeed --deepspeed_config %s --no-pipeline-parallel")  # fmt: skip


def test_deepspeeds_json_of_megatron_deepspeed_decides_the_stage(tmp_path):
    config = json.dumps({"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 4})
    both = written(tmp_path, run__args=MEGATRON % "$CONFIG", ds__json=config)
    assert read_launch(both, gpus=8).plan.zero_stage == 3 and read_launch(both, gpus=8).unresolved == {}
    assert read_launch(MEGATRON % "ds_zero2.json", gpus=8).plan.zero_stage == 2
    assert read_launch(MEGATRON % "ds.json --zero-stage 1", gpus=8).plan.zero_stage == 1
    with pytest.raises(CostModelError, match=r"ds\.json, which was not given"):
        read_launch(MEGATRON % "ds.json", gpus=8).plan  # noqa: B018


def test_a_template_that_a_script_fills_in_is_read_as_filled_in(tmp_path):
    script = (
        "#!/bin/bash\nGLOBAL=256\nSTAGE=1\nconfig=ds_config_run.json\n"
        'sed "s/CONFIG_BATCH_SIZE/${GLOBAL}/" template.json | sed "s/ZERO_STAGE/${STAGE}/" '
        '| sed "s/CONFIG_FP16/true/" > ${config}\n'
        "deepspeed --num_gpus 8 --num_nodes 1 pretrain_gpt.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 "
        "--seq-length 2048 --micro-batch-size 4 --global-batch-size ${GLOBAL} --fp16 --deepspeed --deepspeed_config ${config} "
        "--no-pipeline-parallel\n"
    )
    alone = read_launch(written(tmp_path, run__sh=script))
    assert alone.plan_fields["zero_stage"] == 1 and "zero_stage" not in alone.assumed and alone.plan.zero_stage == 1
    template = (
        '{"train_batch_size": CONFIG_BATCH_SIZE, "zero_optimization": {"stage": ZERO_STAGE}, "fp16": {"enabled": CONFIG_FP16}}'
    )
    both = read_launch(written(tmp_path, run__sh=script, template__json=template))
    assert both.unresolved == {} and both.conflicts == () and both.plan == alone.plan


def test_a_pyramid_of_experts_is_refused_rather_than_taken_for_a_dense_model():
    launch = read_launch(MEGATRON % "zero1.json" + " --num-experts 32 32 64 64 --moe-expert-parallel-size 8", gpus=8)
    with pytest.raises(NotModelled, match="pyramid"):
        launch.model  # noqa: B018


# Advice in a file's own words


@pytest.mark.parametrize(("files", "own", "others"), [
    ({"run__yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
                   "num_processes: 8\nmixed_precision: bf16\n"}, "deepspeed_config.zero_stage", "fsdp"),
    ({"run__yaml": "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
                   "num_processes: 8\nmixed_precision: bf16\n"}, "fsdp_config.fsdp_reshard_after_forward", "deepspeed"),
    ({"run__yaml": TRL.replace("use_peft: true\n", "deepspeed: ds.json\ngradient_checkpointing: true\n"),
      "ds__json": '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto"}'},
     "deepspeed.zero_optimization.stage", "fsdp"),
    ({"run__yaml": LLAMA_FACTORY.replace("lora\n%s", "full\n") + "deepspeed: ds_z3_config.json\n"},
     "deepspeed.zero_optimization.stage", "fsdp"),
])  # fmt: skip
def test_a_run_under_deepspeed_is_advised_in_deepspeeds_flags(tmp_path, files, own, others):
    launch = read_launch(written(tmp_path, **files), gpus=8, settings={"seq_len": "1024", "micro_batch": "1"})
    priced = resolve(launch, model=load_model("llama3.2-1b"))
    answer = estimate(priced.model, load_cluster("dgx-h100", gpus=8), priced.plan, priced.software)
    advice = improvements(launch, answer, most=50)
    words = [flag for one in advice for flag in one.flags]
    assert words and not [word for word in words if others in word]
    assert any(own in word for one in advice if "zero_stage" in one.change for word in one.flags)


def test_a_plan_for_deepspeed_is_written_in_deepspeeds_flags():
    launch = read_launch(LLAMA_FACTORY.replace("lora\n%s", "full\n") + "deepspeed: ds_z3_config.json\n", gpus=8)
    plan, model = launch.plan, load_model("llama3-8b")
    for form in ("accelerate", "huggingface", "llama-factory", "axolotl"):
        deep, sharded = (write_launch(form, plan, model, framework=name) for name in ("deepspeed", None))
        assert "zero_stage: 3" in deep or "stage: 3" in deep
        assert "fsdp" not in deep.lower() and "fsdp" in sharded.lower()


# Meshes, templates, older layouts

HSDP = ("base_model: meta-llama/Llama-3.1-8B\nsequence_len: 2048\nmicro_batch_size: 1\ngradient_accumulation_steps: 2\n"
        "bf16: true\nfsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n")  # fmt: skip


@pytest.mark.parametrize(("mesh", "gpus", "data", "batch"), [
    ("dp_shard_size: 4\ndp_replicate_size: 2\ntensor_parallel_size: 2\n", 16, 8, 16),
    ("dp_shard_size: 4\ndp_replicate_size: 2\n", 8, 8, 16), ("dp_shard_size: 4\ndp_replicate_size: 1\n", 4, 4, 8),
    ("dp_shard_size: 2\ndp_replicate_size: 2\ncontext_parallel_size: 4\n", 16, 4, 8),
    ("dp_shard_size: 2\ndp_replicate_size: 2\ntensor_parallel_size: 2\ncontext_parallel_size: 2\n", 16, 4, 8),
])  # fmt: skip
def test_a_mesh_whose_degrees_are_all_stated_is_the_world(mesh, gpus, data, batch):
    launch = read_launch(HSDP + mesh)
    assert (launch.gpus, launch.plan.data_parallel, launch.plan.global_batch) == (gpus, data, batch)
    assert {"gpus", "data_parallel", "global_batch"} <= set(launch.derived)
    cluster = load_cluster("dgx-h100", gpus=gpus)
    assert estimate(launch.model, cluster, launch.plan, launch.software).step_time > 0


def test_shards_alone_leave_the_world_open():
    assert read_launch(HSDP + "dp_shard_size: 4\n").gpus is None
    with pytest.raises(CostModelError, match="number of GPUs"):
        read_launch(HSDP + "dp_shard_size: 4\n").plan  # noqa: B018


TITANS = """// GPT-2 with ZeRO-3 and 1D tensor parallelism
{
  "BATCH_SIZE": 8, /* of a data-parallel rank */
  "NUM_EPOCHS": 10,
  "SEQ_LEN": 1024, # tokens
  "NUM_MICRO_BATCHES": 4,
  "HIDDEN_SIZE": 768,
  "TENSOR_SHAPE": [2, 1024, 768],
  // if you do not want zero, comment out this section: "zero": null
  "zero": {"model_config": {"tensor_placement_policy": "cuda"}, "optimizer_config": {"initial_scale": 32}},
  "optimizer": {"type": "HybridAdam", "lr": 1.5e-5, "note": "// no comment, and no comma,}"},
  "model": {"type": "GPT3_pipeline_hybrid", "checkpoint": true, "num_chunks": 1,},
  "parallel": {"pipeline": %d, "tensor": {"size": 2, "mode": "1d"}},
}
"""


@pytest.mark.parametrize(("stages", "micro", "steps"), [(1, 8, 1), (2, 2, 4)])
def test_a_titans_json_with_comments_is_read(stages, micro, steps):
    launch = read_launch(TITANS % stages, gpus=16)
    said = launch.plan_fields
    assert (launch.framework, launch.model_described, launch.unknown) == ("colossalai", "gpt3-175b", ())
    assert (said["micro_batch"], said["gradient_accumulation"]) == (micro, steps)  # a pipeline splits what a rank has
    assert (said["tensor_parallel"], said["pipeline_parallel"], said["zero_stage"]) == (2, stages, 3)
    assert (said["recompute"], said["dtype"], said["seq_len"]) == ("full", "fp16", 1024)
    assert said["global_batch"] == 8 * 16 // (2 * stages)


def test_comments_in_json_are_no_reason_to_refuse_it_and_nonsense_is(tmp_path):
    plain = {"zero_optimization": {"stage": 2}, "train_batch_size": 8, "wandb": {"url": "http://x//y", "note": "a # b /* c */"}}
    text = json.dumps(plain, indent=1)
    commented = text.replace('"train_batch_size"', '// sequences\n "train_batch_size"').replace("8,", "8, # all\n")
    assert read_launch(commented).plan_fields == read_launch(text).plan_fields
    nonsense = ('{"train_batch_size": 8,, }', '{"train_batch_size": }', '{"a" "b"}', "{/* never closed", '{"batch": eight}')
    for bad in nonsense:
        with pytest.raises(UnreadableFile, match="not JSON"):
            read_launch(written(tmp_path, ds__json=bad))


T5 = """trainer:
  num_nodes: 2
  devices: 8
  precision: bf16
exp_manager:
  name: megatron_t5
model:
  micro_batch_size: 4
  global_batch_size: 128
  tensor_model_parallel_size: 2
  megatron_amp_O2: true
  seq_length: 512
  encoder:
    num_layers: 24
    hidden_size: 4096
%s
  decoder:
    num_layers: 24
    hidden_size: 4096
%s
"""


@pytest.mark.parametrize(("keys", "recompute"), [
    ({"granularity": "full", "method": "block", "num_layers": 1}, "full"), ({"granularity": "full", "method": "uniform"}, "full"),
    ({"granularity": "full", "method": "block", "num_layers": 0}, "none"), ({"granularity": "selective"}, "selective"),
    ({"method": "block", "num_layers": 2}, "full"), ({"method": "block", "num_layers": 0}, "none"),
    ({"granularity": "null"}, "none"), ({"granularity": "null", "method": "null"}, "none"),
])  # fmt: skip
def test_recomputation_of_nemos_t5_is_that_of_its_encoder_and_decoder(keys, recompute):
    lines = "\n".join(f"    activations_checkpoint_{name}: {value}" for name, value in keys.items())
    launch = read_launch(T5 % (lines, lines))
    assert launch.plan_fields["recompute"] == recompute and "recompute" not in launch.assumed
    assert launch.framework == "nemo" and launch.unknown == () and any("T5" in note for note in launch.notes)


# Whose code splits what


@pytest.mark.parametrize(("text", "software"), [
    ('{"train_batch_size": 8, "tensor_parallel": {"autotp_size": 2}, "zero_optimization": {"stage": 2}}', "deepspeed-autotp"),
    ('{"train_batch_size": 8, "sequence_parallel_size": 4, "zero_optimization": {"stage": 3}}', "deepspeed-ulysses"),
    ('{"train_batch_size": 8, "zero_optimization": {"stage": 3}}', "deepspeed"),
    (TRL + "parallelism_config:\n  sp_size: 2\ndeepspeed: zero3.json\n", "deepspeed-ulysses"),
    (TRL + "parallelism_config:\n  tp_size: 8\n", "hf-fsdp"), (TRL, "hf-trainer"), (TRL + "fsdp: full_shard\n", "hf-fsdp2"),
    (MEGATRON % "x --zero-stage 3 --tensor-model-parallel-size 2", "megatron-deepspeed-zero"),
    (MEGATRON % "x --zero-stage 1 --tensor-model-parallel-size 2", "megatron-deepspeed"),
    (MEGATRON % "x --zero-stage 3", "deepspeed"),
    ("--plugin 3d --tp 2 --pp 2 --batch_size 8 --max_length 2048 -g -x --model_name llama2-7b\n", "megatron-core"),
    ("--plugin gemini --batch_size 8 --max_length 2048 -g -x --model_name llama2-7b\n", "deepspeed"),
], ids=range(12))  # fmt: skip
def test_a_launch_is_priced_by_a_framework_that_splits_as_it_does(text, software):
    launch = read_launch(text, gpus=8, settings={"seq_len": "2048", "micro_batch": "1", "global_batch": "8"})
    assert launch.software == software
    try:
        estimate(load_model("llama2-7b"), load_cluster("dgx-h100", gpus=8), launch.plan, launch.software)
    except IllegalPlan as refused:
        pytest.fail(str(refused))


@pytest.mark.parametrize(("dialect", "lines", "batching"), [
    ("huggingface", "packing: true\nmax_length: 2048\n", "packed"), ("huggingface", "padding_free: true\n", "padding-free"),
    ("huggingface", "group_by_length: true\n", "grouped"), ("huggingface", "packing: true\npacking_strategy: wrapped\n", None),
    ("huggingface", "train_sampling_strategy: group_by_length\n", "grouped"), ("huggingface", "packing: false\n", None),
    ("axolotl", "sample_packing: true\npad_to_sequence_len: true\n", "packed"),
    ("axolotl", "pad_to_sequence_len: true\n", "padded-whole"), ("axolotl", "batch_flattening: true\n", "padding-free"),
    ("llama-factory", "packing: true\n", None), ("llama-factory", "packing: true\nneat_packing: true\n", "packed"),
    ("torchtune", "dataset:\n  packed: true\n", "packed"), ("openrlhf", "packing_samples: true\n", "padding-free"),
    ("llm-foundry", "train_loader:\n  dataset:\n    packing_ratio: auto\n", "packed"), ("megatron", "--packing true\n", "packed"),
    ("megatron-bridge", "dataset:\n  packed_sequence_specs:\n    packed_sequence_size: 4096\n", "packed"),
])  # fmt: skip
def test_how_samples_make_micro_batches_is_read_from_each_trainer_s_words(dialect, lines, batching):
    """Joined and cut samples with attention over all of a sequence are full sequences, whatever the flag is called."""
    launch = read_launch(lines, dialect=dialect)
    assert launch.plan_fields.get("batching") == batching
    assert not launch.conflicts and not {"packing", "neat_packing", "sample_packing", "padding_free"} & set(launch.unpriced)


@pytest.mark.parametrize(("dialect", "batching"), [
    ("huggingface", "packed"), ("huggingface", "padding-free"), ("huggingface", "grouped"), ("axolotl", "padded-whole"),
    ("axolotl", "packed"), ("llama-factory", "packed"), ("torchtune", "packed"), ("openrlhf", "padding-free"),
])  # fmt: skip
def test_how_samples_make_micro_batches_comes_back_as_it_was_written(dialect, batching):
    plan = Plan(global_batch=64, seq_len=4096, data_parallel=8, batching=batching, zero_stage=3)
    text = write_launch(dialect, plan, load_model("llama3-8b"))
    assert read_launch(text, gpus=8, dialect=dialect).plan_fields["batching"] == batching


LOADED = "model_name_or_path: meta-llama/Meta-Llama-3-8B\nper_device_train_batch_size: 1\ntorch_dtype: bfloat16\n"
SHARED = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\nmixed_precision: {}\n"
IN_16_BIT = "base_model: meta-llama/Meta-Llama-3-8B\nmicro_batch_size: 1\nsequence_len: 2048\nbf16: {}\n"


@pytest.mark.parametrize(("dialect", "files", "mixed"), [
    ("huggingface", [LOADED], False), ("huggingface", [LOADED + "bf16: true\n"], None),
    ("huggingface", [LOADED + "max_length: 512\n"], None),  # TRL's trainers have mixed precision unless it is turned off
    ("huggingface", [LOADED + "max_length: 512\nbf16: false\n"], False),
    ("huggingface", [LOADED + "deepspeed: zero2.json\n"], None), ("axolotl", [IN_16_BIT.format("full")], False),
    ("axolotl", [IN_16_BIT.format("true")], None), (None, [LOADED, SHARED.format("'no'")], False),
    (None, [LOADED, SHARED.format("bf16")], None), ("llama-factory", [LOADED + "stage: sft\npure_bf16: true\n"], False),
])  # fmt: skip
def test_a_model_in_16_bit_trains_without_mixed_precision_where_none_is_asked_for(tmp_path, dialect, files, mixed):
    paths = [tmp_path / f"{number}.yaml" for number in range(len(files))]
    for path, lines in zip(paths, files, strict=True):
        path.write_text(lines)
    said = read_launch(paths, gpus=8, dialect=dialect).plan_fields
    assert (said.get("mixed_precision"), said["dtype"]) == (mixed, "bf16")


@pytest.mark.parametrize("dialect", ["huggingface", "axolotl"])
def test_training_without_mixed_precision_comes_back_as_it_was_written(dialect):
    plan = Plan(global_batch=64, seq_len=4096, data_parallel=8, dtype="bf16", mixed_precision=False)
    text = write_launch(dialect, plan, load_model("llama3-8b"))
    assert read_launch(text, gpus=8, dialect=dialect).plan_fields["mixed_precision"] is False
