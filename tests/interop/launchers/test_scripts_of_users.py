"""Scripts and files as users write them around a framework: what its code, or a shell, makes of them."""

import json

import pytest

from costmodel import load_framework, load_model
from costmodel.cli import main
from costmodel.interop.launchers import read_launch, resolve
from costmodel.interop.launchers.pricing import catalogue_name, software_of
from costmodel.text.errors import CostModelError, InvalidValue

TRAINED = "--model_name_or_path meta-llama/Llama-3.1-8B --bf16 True --per_device_train_batch_size 2 --max_length 2048"
TORCHRUN = f"torchrun --nproc_per_node 8 train.py {TRAINED}"
AXOLOTL = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\nmicro_batch_size: 2\nval_set_size: 0.1\nnum_epochs: 1\n"
GRPO = "model_name_or_path: Qwen/Qwen3-4B\nper_device_train_batch_size: 4\nnum_generations: 8\n"
GPT = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 512 --micro-batch-size 1 --global-batch-size 8"


@pytest.fixture
def script(tmp_path):
    def write(text, name="train.sh"):
        path = tmp_path / name
        path.write_text(text if name != "train.sh" else f"#!/bin/bash\n{text}\n")
        return path

    return write


# What a shell makes of them


def test_a_variable_that_is_set_unless_it_is(script):
    text = ': "${LENGTH:=4096}"\nNODES=2\n: ${NODES:=8}\ntorchrun --nnodes $NODES --nproc_per_node 8 x.py --max_length $LENGTH '
    launch = read_launch(script(f"{text} --model_name_or_path Qwen/Qwen3-4B"))
    assert (launch.plan_fields["seq_len"], launch.gpus) == (4096, 16)


def test_what_is_set_to_something_unknown_takes_no_default(script):
    launch = read_launch(script(f"GPUS=$(nvidia-smi -L | wc -l)\ntorchrun --nproc_per_node ${{GPUS:-8}} x.py {TRAINED}"))
    assert "--nproc_per_node" in launch.unresolved and launch.gpus is None
    assert read_launch(script(f"torchrun --nproc_per_node ${{GPUS:-8}} x.py {TRAINED}")).gpus == 8


def test_lists_and_loops_over_one_of_them(script):
    text = (
        "MODELS=(\n  \"Qwen/Qwen3-8B\"\n)\nSTAGES=(zero2.json zero3.json)\n"
        "for i in \"${!MODELS[@]}\"; do\n  for LENGTH in 2048; do\n"
        "    torchrun --nproc_per_node 8 x.py --model_name_or_path ${MODELS[$i]} --deepspeed configs/${STAGES[1]} "
        "--max_length $LENGTH --bf16 True\n  done\ndone"
    )
    launch = read_launch(script(text))
    assert (launch.model_described, launch.plan_fields["seq_len"], launch.plan_fields["zero_stage"]) == ("Qwen/Qwen3-8B", 2048, 3)
    several = read_launch(script(text.replace("for LENGTH in 2048", "for LENGTH in 2048 4096")))
    assert "--max_length" in several.unresolved


def test_a_comment_ends_with_its_line_and_a_script_where_it_is_cut_off(script):
    """Bash joins no line to a comment, and takes a backslash at the end of a script for one that joins nothing."""
    text = f"# NAMES=(a b)\nNAMES=(x)\n#   --max_length 512 \\\n{TORCHRUN} \\\n  --run_name ${{NAMES[0]}} \\"
    launch = read_launch(script(text))
    assert (launch.gpus, launch.plan_fields["seq_len"], launch.unresolved) == (8, 2048, {})


def test_a_path_in_an_unknown_folder_is_known_by_its_end(script):
    text = f"{TORCHRUN} --deepspeed $(pwd)/configs/zero2.json"
    launch = read_launch(script(text.replace("meta-llama", "${ROOT}/models")))
    assert (launch.model_described, launch.plan_fields["zero_stage"]) == ("Llama-3.1-8B", 2)
    assert "--deepspeed" in read_launch(script(f"{TORCHRUN} --deepspeed configs/$NAME")).unresolved


@pytest.mark.parametrize(("end", "stage"), [("EOT", 2), ("'EOT'", None)])
def test_a_configuration_that_a_script_writes_is_read(script, end, stage):
    """A shell puts variables into a document unless the word that ends it is quoted."""
    written = '{"zero_optimization": {"stage": $STAGE, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": true}}'
    launch = read_launch(script(f"STAGE=2\ncat <<{end} > $DIR/ds.json\n{written}\nEOT\n{TORCHRUN} --deepspeed $DIR/ds.json"))
    assert launch.plan_fields["zero_stage"] == stage
    if stage:
        assert launch.files == ("train.sh", "ds.json") and launch.plan_fields["offload"] == ["optimizer"]


def test_a_trainers_file_that_a_script_writes_is_read(script):
    text = f"cat > run.yaml <<END\n{AXOLOTL}END\nexport NPROC_PER_NODE=4\naxolotl train run.yaml"
    launch = read_launch(script(text))
    assert (launch.dialect, launch.plan_fields["micro_batch"]) == ("axolotl", 2)


def test_options_that_a_script_takes_are_no_flags_of_the_run(script):
    text = "lr=1e-5\nwhile [[ $# -gt 0 ]]; do\n  case $1 in\n    --lr) lr=\"$2\"; shift 2 ;;\n  esac\ndone\n"
    assert read_launch(script(f"{text}{TORCHRUN} --learning_rate $lr")).unknown == ()


def test_a_flag_without_its_value_is_refused_by_name(script):
    with pytest.raises(InvalidValue, match="--model.*no value"):
        read_launch(script("swift sft --model --train_type full --max_length 2048"))


def test_processes_of_mpirun_on_a_node():
    launch = read_launch(f"mpirun --npernode 8 -x PATH python pretrain_gpt.py {GPT}")
    assert launch.assumed["gpus"] == 8 and not launch.unknown


# Which statement counts


def test_a_flag_of_accelerate_launch_takes_the_files_place(script):
    """huggingface/accelerate@16cb6eb8 src/accelerate/commands/launch.py ``_validate_launch_command``."""
    file = script("distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_sharding_strategy: 1\n", "a.yaml")
    launch = read_launch([script(f"accelerate launch --num_processes 4 --config_file a.yaml x.py {TRAINED}"), file])
    assert launch.gpus == 4 and not launch.conflicts


def test_settings_of_fsdp_in_a_file_of_their_own(script):
    """transformers 5.23 training_args.py ``_process_fsdp_args``: ``fsdp_config`` is a table, or the path of its JSON."""
    run = script(f"{TORCHRUN.replace('max_length', 'model_max_length')} --fsdp full_shard --fsdp_config configs/fsdp.json")
    alone = read_launch(run)
    assert alone.plan_fields["recompute"] == "none" and "what it says" in " ".join(alone.notes)
    section = json.dumps({"activation_checkpointing": True, "transformer_layer_cls_to_wrap": "X"})
    both = read_launch([run, script(section, "fsdp.json")])
    assert both.plan_fields["recompute"] == "full" and "what it says" not in " ".join(both.notes)


def test_null_says_nothing_and_a_timeout_changes_nothing():
    launch = read_launch(f"{GRPO}use_dora: null\nddp_timeout: 7200\nddp_bucket_cap_mb: 100\nuse_rslora: true\n", gpus=8)
    assert launch.unpriced == ("ddp_bucket_cap_mb", "use_rslora")


def test_an_unknown_flag_that_may_say_the_batch_is_said_to():
    launch = read_launch("python x.py --batch_size 3 --learning_rate 1e-5 --num_train_epochs 3 --model_name_or_path gpt2", gpus=1)
    assert "unknown --batch_size may say micro_batch" in " ".join(launch.notes)
    stated = read_launch("python x.py --batch_size 3 --per_device_train_batch_size 3 --model_name_or_path gpt2", gpus=1)
    assert "may say" not in " ".join(stated.notes)


def test_a_length_that_no_file_says_is_assumed(script, capsys):
    file = script("model_name_or_path: Qwen/Qwen3-4B\nper_device_train_batch_size: 4\nnum_train_epochs: 1\n", "t.yaml")
    assert main(["explain", str(file), "--gpus", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["assumed"]["seq_len"] == 2048


@pytest.mark.parametrize(("path", "name"), [
    ("/hub/models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f2", "llama3.1-8b"), ("models--Qwen--Qwen3-4B", "qwen3-4b"),
    ("/data/my--models/Qwen3-4B/", "qwen3-4b"),
])  # fmt: skip
def test_a_folder_of_the_hubs_cache_is_the_model_in_it(path, name):
    """huggingface_hub 1.x file_download.py ``repo_folder_name``: type, owner and name with two dashes between them."""
    assert catalogue_name(path) == name


# Losses


@pytest.mark.parametrize(("keys", "fused"), [
    ("plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rms_norm: true\n", None),
    ("plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_fused_linear_cross_entropy: false\n", None),
    ("plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_fused_linear_cross_entropy: true\n", True),
    ("plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n", True),
    ("plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\ncut_cross_entropy: false\n", None),
])  # fmt: skip
def test_a_plugin_of_axolotl_fuses_the_loss_where_its_own_flag_does(keys, fused):
    """axolotl-ai-cloud/axolotl@067b021c8 src/axolotl/integrations/liger/args.py: each kernel by itself, off;
    src/axolotl/integrations/cut_cross_entropy/args.py: on."""
    assert read_launch(AXOLOTL + keys, gpus=8).plan_fields.get("fused_cross_entropy") is fused


@pytest.mark.parametrize(("key", "tiled", "recompute"), [
    ("", True, "full"), ("evaluation_strategy: steps\n", False, "none"), ("max_prompt_length: 512\n", False, "full"),
    ("vllm_device: auto\n", False, "none"), ("# trl==1.9.0\nevaluation_strategy: steps\n", True, "full"),
])  # fmt: skip
def test_a_key_that_later_releases_lack_dates_a_file(key, tiled, recompute):
    """Tiles since TRL 1.7, checkpoints by themselves since 0.22: huggingface/trl@a8cfca6d0, 89070d241, e3b7897c8 remove the keys,
    transformers 4.46 removes ``evaluation_strategy``."""
    launch = read_launch(f"{GRPO}bf16: true\n{key}", gpus=8)
    assert (launch.plan_fields.get("loss") == "tiled", launch.plan_fields["recompute"]) == (tiled, recompute)


def test_before_trl_trained_in_bf16_by_itself_it_trained_in_32_bit():
    """huggingface/trl@32ffa1170 (0.19)."""
    assert read_launch(GRPO, gpus=8).plan_fields["dtype"] == "bf16"
    assert read_launch(f"{GRPO}vllm_device: auto\n", gpus=8).plan_fields["dtype"] == "fp32"


@pytest.mark.parametrize(("key", "lifted"), [
    ("", False), ("max_seq_length: 1024\n", True), ("max_prompt_length: 512\n", False), ("# trl==0.25.1\n", True),
    ("# trl==0.26.0\nevaluation_strategy: steps\n", False),
])  # fmt: skip
def test_before_trl_left_a_quantised_base_as_it_is_loaded_peft_lifted_what_is_not_quantised(key, lifted):
    """huggingface/trl@2af35fb0d (0.26) removes PEFT's preparation; e102ac8df (0.20) ``max_seq_length``."""
    launch = read_launch(f"{GRPO}use_peft: true\nload_in_4bit: true\n{key}", gpus=8)
    assert launch.plan.resolve(load_framework(launch.software)).wide_residual is lifted


def test_a_script_of_its_own_flags_is_no_known_frameworks():
    own = " ".join(f"--own_{name} 1" for name in "abcdefghij")
    with pytest.raises(CostModelError, match="of its 13 keys the nearest, huggingface, knows"):
        read_launch(f"python x.py {own} --learning_rate 1e-5 --num_train_epochs 3 --per_device_train_batch_size 2")
    assert read_launch(f"python x.py {own}".replace("own_", "save_") + f" {TRAINED}", gpus=1).framework == "trl"


def test_a_tree_of_ones_own_is_not_taken_for_megatrons_by_the_ends_of_its_keys():
    own = "model:\n  num_layers: 4\n  hidden_size: 64\n  num_attention_heads: 4\ntraining:\n  micro_batch_size: 2\n  bf16: true\n"
    with pytest.raises(CostModelError, match="no known framework's launch file"):
        read_launch(own)
    assert read_launch(f"{own}  tensor_model_parallel_size: 2\n  seq_length: 512\n", gpus=2).plan_fields["tensor_parallel"] == 2


def test_one_node_is_not_held_against_what_splits_a_model():
    text = f"torchrun --nproc_per_node 8 pretrain_gpt.py {GPT} --tensor-model-parallel-size 8 --pipeline-model-parallel-size %d"
    assert read_launch(text % 1).assumed["gpus"] == 8
    several = read_launch(text % 4)
    assert several.gpus is None and not several.conflicts
    assert read_launch(f"{text % 4} --nnodes 3").conflicts


# Lengths of samples that a run makes


@pytest.mark.parametrize(("keys", "length", "said"), [
    ("max_completion_length: 4096\n", 4608, True), ("max_completion_length: 4096\nmax_prompt_length: 1024\n", 5120, False),
    ("", 1024, True), ("# trl==0.17.0\n", 768, True),
])  # fmt: skip
def test_a_completion_and_its_prompt_are_a_sequence(keys, length, said):
    """Completions of 256 tokens by themselves, from TRL 1.10 (huggingface/trl@286d19fc7) of 512; prompts of 512 before 0.28."""
    launch = read_launch(GRPO + keys, gpus=8)
    assert launch.assumed["seq_len"] == length
    assert ("which no file says" in " ".join(launch.notes)) is said


# Much copied scripts


@pytest.mark.parametrize(("name", "paired", "referred"), [
    ("dpo_training.py", True, "dpo"), ("scripts/dpo_train.py", True, "dpo"), ("finetune_dpo.py", True, "dpo"),
    ("reward_training.py", True, None), ("src/cpo.py", True, None), ("run_kto_training.py", None, "kto"),
    ("sft_training.py", None, None),
])  # fmt: skip
def test_a_script_is_called_after_its_method(name, paired, referred):
    fields = read_launch(TORCHRUN.replace("train.py", name)).plan_fields
    assert (fields.get("paired"), fields.get("referred")) == (paired, referred)


@pytest.mark.parametrize(("flags", "fields"), [
    ("--lora_rank 64 --trainable q_proj,k_proj,v_proj,o_proj --modules_to_save embed_tokens,lm_head --load_in_kbits 16",
     {"adapter": "lora", "lora_targets": ("query", "key", "value", "output"), "trained_edges": True}),
    ("--lora_rank 8 --load_in_kbits 4", {"adapter": "qlora"}),
    ("--use_peft True --lora_rank 8 --target_modules all",
     {"adapter": "lora", "lora_targets": ("query", "key", "value", "output", "gate", "up", "down")}),
    ("--use_gradient_checkpointing", {"recompute": "full"}), ("--bits 16", {"adapter": "none"}),
])  # fmt: skip
def test_flags_of_much_copied_scripts(flags, fields):
    """ymcui/Chinese-LLaMA-Alpaca-3 scripts/training/run_clm_sft_with_peft.py; shibing624/MedicalGPT training/dpo_training.py;
    haotian-liu/LLaVA@c121f04 llava/train/train.py: of 16 bits nothing is quantised."""
    found = {"adapter": "none"} | read_launch(f"{TORCHRUN} {flags}").plan_fields
    assert {name: found.get(name) for name in fields} == fields


@pytest.mark.parametrize(("script", "flags", "framework"), [
    ("training/pretraining.py", "--block_size 512 --packing True --use_peft True", "transformers"),
    ("training/dpo_training.py", "--use_peft True --beta 0.1", "trl"), ("finetune_dpo.py", "", "transformers"),
    ("x.py", "--packing True", "trl"), ("run_clm.py", "", "transformers"),
])  # fmt: skip
def test_a_trainer_of_trl_is_known_by_its_own_flags_and_names(script, flags, framework):
    """shibing624/MedicalGPT@2f1008c training/pretraining.py: ``SavePeftModelTrainer(Trainer)``, whose logits are whole."""
    launch = read_launch(f"torchrun --nproc_per_node 2 {script} --model_name_or_path Qwen/Qwen3-4B --bf16 True {flags}")
    assert (launch.framework, launch.plan_fields.get("loss")) == (framework, "tiled" if framework == "trl" else None)


def test_a_source_and_its_target_are_a_sequence():
    """shibing624/MedicalGPT training/supervised_finetuning.py: ``max_source_length + max_target_length``."""
    text = "torchrun --nproc_per_node 2 x.py --model_name_or_path gpt2 --per_device_train_batch_size 1 --bf16 True"
    assert read_launch(f"{text} --max_source_length 1024 --max_target_length 512").plan_fields["seq_len"] == 1536


def test_qlora_py_trains_all_matrices_on_a_source_and_its_target():
    """artidoro/qlora@7f4e95a qlora.py: ``max_new_tokens`` are of its evaluation."""
    text = "python qlora.py --model_name_or_path huggyllama/llama-7b --bits 4 --bf16 --source_max_len 16 --target_max_len 512"
    launch = read_launch(f"{text} --max_new_tokens 32 --per_device_train_batch_size 1", gpus=1)
    fields = launch.plan_fields
    assert (fields["adapter"], len(fields["lora_targets"]), fields["lora_rank"], fields["seq_len"]) == ("qlora", 7, 64, 528)
    assert "generates" not in " ".join(launch.notes)


# Pretraining


def test_gradients_of_nemo_are_reduced_in_32_bit_unless_it_is_told_not_to():
    """NVIDIA/NeMo@8cfedd7203 megatron_gpt_model.py ``setup_mcore_distributed_parallel``."""
    file = ("trainer:\n  num_nodes: 1\n  devices: 8\nmodel:\n  mcore_gpt: true\n  micro_batch_size: 1\n  global_batch_size: 64\n"
            "  encoder_seq_length: 2048\n  num_layers: 4\n  hidden_size: 512\n  num_attention_heads: 8\n  optim:\n"
            "    name: %s\n    lr: 1e-4\n    betas: [0.9, 0.95]\n")  # fmt: skip
    assert read_launch(file % "mcore_distributed_optim").plan_fields["gradient_bytes"] == 4
    told = read_launch(file % "mcore_distributed_optim\n    grad_sync_dtype: bf16")
    assert told.plan_fields.get("gradient_bytes") is None and not told.unpriced  # NeMo's own
    assert load_framework("nemo").reduce_bytes == 2.0
    other = read_launch(file % "distributed_fused_adam\n    grad_sync_dtype: bf16")
    assert other.plan_fields.get("gradient_bytes") is None and "grad_sync_dtype" in " ".join(other.unpriced)


def test_a_stage_of_nemos_launcher_leaves_its_configuration_to_a_file():
    """NVIDIA/NeMo-Framework-Launcher@26e42fa9 launcher_scripts/conf/config.yaml."""
    launch = read_launch(
        "python3 main.py stages=[training] training=llama/llama2_7b training.trainer.num_nodes=2 training.trainer.devices=8 "
        "training.model.micro_batch_size=2 training.model.optim.lr=1e-4 training.exp_manager.resume_if_exists=False"
    )
    assert (launch.dialect, launch.gpus, launch.plan_fields["micro_batch"]) == ("nemo", 16, 2)
    assert not launch.unknown
    with pytest.raises(CostModelError, match="training llama/llama2_7b names a configuration, which was not given"):
        resolve(launch)


@pytest.mark.parametrize(("shape", "name"), [
    ({"num-layers": 32, "hidden-size": 2560, "mlp_type": "gated", "mlp_multiple_of": 256, "norm": "layernorm"}, "stablelm-3b"),
    ({"num-layers": 32, "hidden-size": 4096, "mlp_type": "llama", "norm": "rmsnorm"}, "llama-7b"),
])  # fmt: skip
def test_a_gated_mlp_of_gpt_neox_by_its_kind(shape, name):
    """StableLM 3B and Llama 7B as published, in GPT-NeoX's words: 2 560 to 6 912 and 4 096 to 11 008."""
    model = load_model(name)
    file = json.dumps({
        **shape, "pipe-parallel-size": 1, "model-parallel-size": 1, "num-attention-heads": 32, "seq-length": 2048,
        "pos-emb": "rotary", "activation": "silu", "no-weight-tying": True, "use_bias_in_attn_linear": False,
        "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}, "vocab_size": model.vocabulary,
    })  # fmt: skip
    read = read_launch(file, gpus=8).model_described
    assert read["ffn_hidden_size"] == model.feed_forward and "not gated" not in read["activation"]


@pytest.mark.parametrize(("mesh", "gpus"), [
    ("ici_fsdp_parallelism=4 ici_tensor_parallelism=4", 16), ("ici_fsdp_parallelism=8 dcn_fsdp_parallelism=4", 32),
    ("ici_fsdp_parallelism=8 dcn_data_parallelism=2", 16), ("dcn_fsdp_parallelism=4", None),
])  # fmt: skip
def test_maxtexts_mesh_is_the_world_where_it_leaves_no_axis_open(mesh, gpus):
    """AI-Hypercomputer/maxtext@e591f30 base.yml: ``dcn_data_parallelism`` takes what is left, a slice where there is one."""
    launch = read_launch(f"python3 MaxText/train.py MaxText/configs/base.yml model_name=llama2-7b per_device_batch_size=2 {mesh}")
    assert launch.gpus == gpus


def test_a_model_of_a_fork_of_llm_foundry_has_not_mpts_shape():
    file = ("max_seq_len: 2048\nmodel:\n  name: %s\n  d_model: 512\n  n_heads: 8\n  n_layers: 4\nglobal_train_batch_size: 8\n"
            "device_train_microbatch_size: 1\nprecision: amp_bf16\nfsdp_config:\n  sharding_strategy: FULL_SHARD\n")  # fmt: skip
    assert resolve(read_launch(file % "mpt_causal_lm", gpus=8)).model.hidden == 512
    with pytest.raises(CostModelError, match="own_llama"):
        resolve(read_launch(file % "own_llama", gpus=8))


def test_the_softmax_of_unfused_attention_is_fused_unless_it_is_not():
    """microsoft/Megatron-DeepSpeed@f4157bea69 megatron/model/fused_softmax.py."""
    text = f"deepspeed pretrain_gpt.py {GPT} --deepspeed --zero-stage 1"
    kernels = [resolve(read_launch(f"{text} {more}", gpus=8)).plan.attention
               for more in ("", "--no-masked-softmax-fusion", "--no-masked-softmax-fusion --use-flash-attn-v2")]  # fmt: skip
    assert kernels == ["fused-softmax", "unfused", "flash"]


# slime


SLIME = """MODEL_ARGS=(--num-layers 36 --hidden-size 2560)
PERF=(
   --tensor-model-parallel-size 2
   --sequence-parallel
   --use-dynamic-batch-size
   --max-tokens-per-gpu 8192
)
ray job submit --address="http://127.0.0.1:8265" --runtime-env-json="${ENV}" -- python3 train.py --actor-num-nodes 2 \\
   --actor-num-gpus-per-node 8 --hf-checkpoint $ROOT/Qwen3-4B --rollout-batch-size 32 --n-samples-per-prompt 8 \\
   --advantage-estimator grpo --num-steps-per-rollout 2 --rollout-max-response-len 1536 ${PERF[@]} %s"""


def test_slime_is_megatron_with_what_it_sets_itself(script):
    """THUDM/slime@624b824a8 slime/backends/megatron_utils/arguments.py ``_set_default_megatron_args``."""
    launch = read_launch(script(SLIME.replace("MODEL_ARGS=(--num-layers 36 --hidden-size 2560)\n", "") % ""))
    assert (launch.dialect, launch.model_described, launch.gpus) == ("slime", "Qwen3-4B", 16)
    assert software_of(launch) == "megatron-core"
    plan = resolve(launch).plan
    assert (plan.dtype, plan.zero_stage, plan.batching, plan.global_batch, plan.seq_len) == ("bf16", 1, "padding-free", 128, 2048)
    assert (plan.data_parallel, plan.micro_batch) == (8, 4)  # 8,192 tokens are four sequences, which divide the sixteen of a copy
    assert not launch.unknown and "only the actor's update" in " ".join(launch.notes)


def test_a_shape_of_slime_outranks_the_name_of_its_checkpoint(script):
    assert read_launch(script(SLIME % "${MODEL_ARGS[@]}")).model_described["num_layers"] == 36
    assert read_launch(script(SLIME % "--micro-batch-size 2"), gpus=32).gpus == 32
