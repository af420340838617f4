"""Flags that mean something beside others alone."""

import pytest

from costmodel import load_framework, load_model, read_launch
from costmodel.interop.launchers.pricing import resolve, software_of

TUNED = "model:\n  _component_: torchtune.models.llama3.llama3_8b\nbatch_size: 2\ntokenizer:\n  max_seq_len: 2048\n"
TRAINED = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 1\nmax_length: 1024\ngradient_checkpointing: true\n"
AXOLOTL = "base_model: Qwen/Qwen3-8B\nsequence_len: 1024\nmicro_batch_size: 1\ngradient_checkpointing: true\n"


@pytest.mark.parametrize(("compiled", "loss"), [("true", "chunked"), ("false", "chunked-upcast")])
def test_torchtunes_loss_by_chunks_keeps_its_log_softmax_unless_it_is_compiled(compiled, loss):
    text = f"{TUNED}compile: {compiled}\nloss:\n  _component_: torchtune.modules.loss.LinearCrossEntropyLoss\n"
    launch = read_launch(text, gpus=1)
    assert launch.plan.loss == loss
    assert ("compile" in launch.unpriced) == (compiled == "true")


@pytest.mark.parametrize("said", [True, False])
def test_reentrant_checkpoints_are_read_where_layers_are_made_again(said):
    kwargs = f"gradient_checkpointing_kwargs:\n  use_reentrant: {str(said).lower()}\n"
    for text in (TRAINED, AXOLOTL):
        assert read_launch(text + kwargs, gpus=1).plan.reentrant is said
        kept = text.replace("gradient_checkpointing: true", "gradient_checkpointing: false")
        assert read_launch(kept + kwargs, gpus=1).plan.reentrant is None


def test_what_is_said_of_no_checkpoint_is_as_the_release_has_it():
    """huggingface/transformers pull request 43203, in 5.0.0 of January 2026: reentrant before."""
    assert read_launch(TRAINED, gpus=1).plan.reentrant is None
    assert [load_framework(name).reentrant for name in ("hf-trainer", "hf-trainer@2025-12")] == [False, True]
    assert read_launch(AXOLOTL, gpus=1).plan.reentrant is True  # as it says to transformers


def test_tf32_rules_where_nothing_is_narrower():
    assert read_launch(f"{TRAINED}tf32: true\nbf16: false\n", gpus=1).plan.dtype == "tf32"
    assert read_launch(f"{TRAINED}tf32: true\nbf16: true\n", gpus=1).plan.dtype == "bf16"
    assert read_launch(f"{AXOLOTL}tf32: true\nbf16: auto\n", gpus=1).plan.dtype == "bf16"


def test_a_frozen_base_has_as_many_bits_as_are_asked_for():
    for text, adapters in ((TRAINED, "use_peft: true\n"), (AXOLOTL, "adapter: lora\nlora_r: 8\n")):
        for said, adapter in (("load_in_8bit: true", "int8-lora"), ("load_in_8bit: false", "lora")):
            found = read_launch(f"{text}{adapters}{said}\n", gpus=1)
            assert found.plan.adapter == adapter
            assert "load_in_8bit" not in found.unpriced


def test_the_loss_of_trls_own_trainers_is_tiled_with_liger_too_and_whole_where_a_trainer_is_an_experiment():
    """huggingface/trl@v1.15.0 trl/trainer/{sft,dpo,grpo,kto,rloo}_trainer.py (``add_fused_lm_head``;
    ``"fused_linear_cross_entropy": False`` of Liger's), trl/experimental/orpo/orpo_trainer.py."""
    for other in ("", "beta: 0.1\n", "num_generations: 8\n", "use_liger_kernel: true\n"):
        assert read_launch(TRAINED + other, gpus=1).plan.loss == "tiled"
    liger = read_launch(TRAINED + "use_liger_kernel: true\n", gpus=1).plan
    assert (liger.fused_cross_entropy, liger.fused_norms, liger.fused_activation) == (False, True, True)
    assert read_launch("trl orpo --model_name_or_path Qwen/Qwen3-8B --max_length 1024", gpus=1).plan.loss is None
    assert read_launch(TRAINED.replace("max_length", "seq_length"), gpus=1).plan_fields.get("loss") is None


@pytest.mark.parametrize(("version", "framework"), [(1, "hf-fsdp"), (2, "hf-fsdp2")])
def test_accelerates_fsdp_is_priced_as_its_version(version, framework):
    text = f"{TRAINED}bf16: true\nfsdp: full_shard\nfsdp_config:\n  fsdp_version: {version}\n"
    assert software_of(read_launch(text, gpus=8)) == framework


def test_trls_own_defaults_rule_where_one_of_its_trainers_is_started_and_transformers_elsewhere():
    """huggingface/trl@v1.9.0 trl/trainer/base_config.py (``gradient_checkpointing``, ``bf16``), trl/trainer/utils.py
    (``create_model_from_path``); @v1.15.0 trl/trainer/dpo_trainer.py ``add_fused_lm_head``; transformers has none of them."""
    named = "--model_name_or_path Qwen/Qwen3-8B --dataset_name some/set"
    sft, dpo = (read_launch(f"trl {name} {named} --max_length 1024", gpus=1).plan for name in ("sft", "dpo"))
    assert (sft.recompute, sft.dtype, sft.base_dtype, sft.loss) == ("full", "bf16", "fp32", "tiled")
    assert (dpo.recompute, dpo.dtype, dpo.base_dtype, dpo.loss) == ("full", "bf16", "fp32", "tiled")
    assert read_launch(f"trl sft {named}", gpus=1).plan.seq_len == 1024
    notes = " ".join(read_launch(f"trl dpo {named}", gpus=1).notes)
    assert "a pair of sequences" in notes
    assert "a reference passes" in notes
    assert "reference model" not in " ".join(read_launch(f"trl dpo {named} --use_peft", gpus=1).notes)
    narrowed = "--max_length 1024 --dtype bfloat16 --gradient_checkpointing false --use_peft"
    narrow = read_launch(f"trl sft {named} {narrowed}", gpus=1).plan
    assert (narrow.recompute, narrow.dtype, narrow.base_dtype) == ("none", "bf16", None)
    script = read_launch(f"torchrun run_clm.py {named} --do_train --bf16 --block_size 1024 --torch_dtype bfloat16", gpus=1).plan
    assert (script.recompute, script.base_dtype, script.loss) == ("none", None, None)


def test_llama_factory_lifts_all_weights_that_train_unless_it_is_told_to_keep_them_or_deepspeed_does():
    """hiyouga/LLaMA-Factory@ff6d4d12 src/llamafactory/model/adapter.py, ``init_adapter``."""
    text = "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\ncutoff_len: 1024\nper_device_train_batch_size: 1\nbf16: true\n"
    said = {rest: read_launch(f"{text}{rest}", gpus=1).plan.base_dtype for rest in (
        "finetuning_type: full\n", "finetuning_type: full\npure_bf16: true\n", "finetuning_type: lora\n")}  # fmt: skip
    assert list(said.values()) == ["fp32", None, None]


def test_deepspeeds_buckets_are_as_large_as_its_file_says_or_transformers_makes_of_the_width():
    """huggingface/transformers src/transformers/integrations/deepspeed.py, ``trainer_config_finalize``: the square of the hidden
    size, nine tenths of it; gradients and weights travel in 16 bit."""
    sizes = '"stage": 3, "reduce_bucket_size": %s, "stage3_prefetch_bucket_size": "auto"'
    zero = '{"zero_optimization": {' + sizes + '}, "bf16": {"enabled": true}}'
    text = f"{TRAINED}deepspeed: zero.json\nbf16: true\n"
    for said, elements in (("2e8", 2e8), ('"auto"', 4096**2)):
        plan = read_launch([text, zero % said], gpus=8)
        plan = resolve(plan, model=load_model("qwen3-8b")).plan
        assert (plan.bucket_bytes, plan.prefetch_bytes) == (2.0 * elements, 2.0 * int(0.9 * 4096**2))


def test_embedding_and_head_that_train_whole_are_said_and_one_of_them_is_not_modelled():
    lora, both = "lora_modules_to_save: [embed_tokens, lm_head]\n", "additional_target: embed_tokens,lm_head\n"
    for text in (f"{TRAINED}use_peft: true\n{lora}", f"{AXOLOTL}adapter: lora\nlora_r: 8\n{lora}",
                 f"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\ncutoff_len: 1024\nfinetuning_type: lora\n{both}"):  # fmt: skip
        assert read_launch(text, gpus=1).plan.trained_edges
    alone = read_launch(f"{TRAINED}use_peft: true\nlora_modules_to_save: [lm_head]\n", gpus=1)
    assert not alone.plan.trained_edges
    assert "modules_to_save lm_head" in alone.unpriced
