"""Files and command lines of MaxText and verl: meshes, batches of devices, mini-batches of prompts."""

import pytest

from costmodel import estimate, machine, read_launch
from costmodel.interop.launchers.pricing import resolve
from costmodel.text.errors import CostModelError

MAXTEXT = "python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3-8b hardware=gpu max_target_length=4096 "
PPO = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-3B-Instruct data.max_prompt_length=512 "
    "data.max_response_length=1024 trainer.n_gpus_per_node=8 trainer.nnodes=2 actor_rollout_ref.actor.ppo_mini_batch_size=64 "
)


def plan_of(text, **more):
    launch = read_launch(text, **more)
    return launch, resolve(launch).plan


@pytest.mark.parametrize(("said", "gpus"), [
    ("dcn_data_parallelism=4 ici_fsdp_parallelism=4 ici_tensor_parallelism=2 per_device_batch_size=2", 32),
    ("ici_data_parallelism=2 ici_fsdp_parallelism=2 ici_context_parallelism=2 dcn_data_parallelism=1 per_device_batch_size=1", 8),
    ("ici_fsdp_parallelism=1 ici_tensor_parallelism=4 dcn_data_parallelism=2 per_device_batch_size=0.5", 8),
])  # fmt: skip
def test_a_step_of_maxtext_has_its_batch_of_every_device(said, gpus):
    """``per_device_batch_size`` x devices x accumulation, whatever a device shares with others: maxtext/configs/types.py."""
    launch, plan = plan_of(MAXTEXT + said + " gradient_accumulation_steps=3")
    each = float(said.rpartition("=")[2])
    assert (launch.framework, launch.gpus, plan.gpus) == ("maxtext", gpus, gpus)
    assert plan.global_batch == each * gpus * 3
    assert plan.micro_batch * plan.copies == each * gpus


def test_copies_of_maxtexts_mesh_share_what_fsdp_shards():
    _, plan = plan_of(MAXTEXT + "dcn_data_parallelism=4 ici_fsdp_parallelism=4 ici_tensor_parallelism=2 quantization=fp8")
    assert (plan.tensor_parallel, plan.data_parallel, plan.zero_stage, plan.shard_group) == (2, 16, 3, 4)
    assert (plan.dtype, plan.recompute) == ("fp8", "full")
    _, whole = plan_of(MAXTEXT + "ici_fsdp_parallelism=-1 remat_policy=minimal_with_context", gpus=16)
    assert (whole.data_parallel, whole.shard_group, whole.recompute) == (16, None, "none")


def test_weights_of_16_bit_have_gradients_and_both_moments_of_16():
    """Eight bytes a parameter, 16 of weights in 32 bit: AI-Hypercomputer/maxtext@02e796a7 src/maxtext/optimizers/optimizers.py
    ``adam_pax``: zeros like the parameters; src/maxtext/configs/types.py: ``mu_dtype`` is ``weight_dtype``."""
    held = []
    for words in ("", " weight_dtype=bfloat16"):
        launch, plan = plan_of(f"{MAXTEXT}ici_fsdp_parallelism=8{words}", gpus=8)
        assert not launch.unpriced
        memory = estimate(resolve(launch).model, machine("h100", gpus=8), plan, "maxtext").memory
        held.append(memory.weights + memory.gradients + memory.optimizer)
    assert held[1] == pytest.approx(held[0] / 2.0)
    assert read_launch(f"{MAXTEXT}quantization=fp8 weight_dtype=bfloat16", gpus=8).unpriced


def test_a_circular_pipeline_goes_round_as_often_as_its_layers_need():
    """32 layers over 4 stages of 2 layers: 4 rounds; as many pieces as stages where none are said."""
    _, plan = plan_of(MAXTEXT + "ici_pipeline_parallelism=4 num_layers_per_pipeline_stage=2 ici_fsdp_parallelism=2 "
                      "dcn_data_parallelism=1 per_device_batch_size=4")  # fmt: skip
    assert (plan.pipeline_parallel, plan.virtual_stages, plan.schedule) == (4, 4, "breadth-first")
    assert plan.micro_batches == 4 and plan.global_batch == 4 * 8


def test_a_policy_that_keeps_some_products_is_refused_by_name():
    with pytest.raises(CostModelError, match="remat_policy save_out_proj"):
        plan_of(MAXTEXT + "remat_policy=save_out_proj", gpus=8)
    assert plan_of(MAXTEXT + "remat_policy=save_out_proj", gpus=8, settings={"recompute": "full"})[1].recompute == "full"


def test_maxtexts_words_are_arguments_in_a_script_whose_own_names_are_variables(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        "#!/bin/bash\nlength=8192\nXLA_FLAGS=--xla_gpu_enable_triton_gemm=false python3 -m maxtext.trainers.pre_train.train \\\n"
        "  base.yml model_name=llama2-7b hardware=gpu max_target_length=$length per_device_batch_size=2 steps=10\n",
        encoding="utf-8",
    )
    launch, plan = plan_of(script, gpus=8)
    assert (launch.model.name, plan.seq_len, plan.global_batch) == ("llama2-7b", 8192, 16)


def test_a_misspelled_key_of_maxtext_is_offered_as_it_is_spelled():
    assert any("did you mean max_target_length?" in note for note in read_launch(f"{MAXTEXT} max_target_len=1", gpus=8).notes)


def test_maxtexts_shape_without_a_name_is_that_of_its_base(tmp_path):
    file = tmp_path / "run.yml"
    text = "base_config: base.yml\nbase_emb_dim: 4096\nbase_num_query_heads: 32\nper_device_batch_size: 1\n"
    file.write_text(text, encoding="utf-8")
    model = read_launch(file, gpus=8).model
    assert (model.layers, model.hidden, model.heads, model.feed_forward, model.vocabulary) == (16, 4096, 32, 7168, 32_000)


def test_a_mini_batch_of_verl_is_of_prompts_with_all_their_answers():
    launch, plan = plan_of(PPO + "actor_rollout_ref.rollout.n=5 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4")
    assert (launch.framework, launch.software, plan.gpus) == ("verl", "hf-fsdp", 16)
    assert (plan.global_batch, plan.micro_batch, plan.seq_len, plan.zero_stage) == (64 * 5, 4, 1536, 3)
    assert (plan.recompute, plan.loss, plan.batching) == ("full", "fused", "full")
    assert any("actor's update" in note for note in launch.notes)


def test_a_micro_batch_of_so_many_tokens_holds_the_sequences_that_fit():
    sized = "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=6144 "
    assert plan_of(PPO + sized)[1].micro_batch == 4
    assert plan_of(PPO + sized + "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2")[1].micro_batch == 8
    wider = plan_of(PPO + sized.replace("6144", "8000") + "actor_rollout_ref.rollout.n=3")[1]
    assert (wider.global_batch // wider.copies, wider.micro_batch) == (12, 4)  # five fit, of which twelve is no multiple


def test_a_micro_batch_of_all_ranks_together_is_shared_out():
    assert plan_of(PPO + "actor_rollout_ref.actor.ppo_micro_batch_size=32")[1].micro_batch == 2


def test_verls_megatron_is_priced_as_megatron():
    launch, plan = plan_of(
        PPO + "--config-name=ppo_megatron_trainer.yaml actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 "
        "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"
    )
    assert launch.software == "megatron-core"
    assert (plan.tensor_parallel, plan.pipeline_parallel, plan.data_parallel, plan.zero_stage) == (4, 2, 2, 1)
    assert plan.recompute == "none" and plan.sequence_parallel


def test_verls_fine_tunes_with_adapters_are_read_from_torchruns_lines():
    launch, plan = plan_of(
        "torchrun --standalone --nnodes=1 --nproc_per_node=8 -m verl.trainer.fsdp_sft_trainer data.train_batch_size=128 "
        "data.micro_batch_size_per_gpu=2 data.max_length=2048 model.partial_pretrain=Qwen/Qwen2.5-7B model.lora_rank=32 "
        "model.fsdp_config.cpu_offload=True model.strategy=fsdp2"
    )
    assert (launch.gpus, launch.software, plan.global_batch, plan.seq_len) == (8, "hf-fsdp2", 128, 2048)
    assert (plan.adapter, plan.lora_rank, plan.parameter_offload) == ("lora", 32, 1.0)
    assert estimate(launch.model, machine("h100", gpus=8), plan, launch.software).fits
