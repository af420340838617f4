"""Fine-tunes a Hugging Face decoder, as a JSON of choices says: `peaks.py CHOICES`.

By transformers' Trainer, TRL's `SFTTrainer` or a plain loop, on one GPU, by DDP, FSDP1, FSDP2 or a stage of DeepSpeed's ZeRO.
"""

import json
import os
import sys

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, AutoModelForCausalLM

choices = json.loads(sys.argv[1])
HALF = torch.bfloat16
QUANTISED = {
    "qlora": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": HALF,
              "bnb_4bit_use_double_quant": True},
    "int8-lora": {"load_in_8bit": True},
}  # fmt: skip
HOW, DOOR, ADAPTER = choices["how"], choices["door"], choices["adapter"]
BATCH, SEQUENCE, TURNS = choices["micro_batch"], choices["seq_len"], choices["accumulation"]
WIDE, RECOMPUTE = choices["weights"] == "fp32", choices["recompute"]
MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj",
            "query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")  # fmt: skip


def flash(module, query, key, value, mask, scaling=None, dropout=0.0, **_):
    """Flash attention, causal, with fewer heads of keys than of queries; its output lies head beside head."""
    out = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


config = AutoConfig.for_model(**choices["config"])
attention = choices["attention"]
if attention == "flash":
    AttentionInterface.register("causal", flash)
    AttentionMaskInterface.register("causal", lambda *_, **__: None)
    attention = "causal"
config._attn_implementation = attention
config.use_cache = False
WORLD, LOCAL = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
torch.cuda.set_device(LOCAL)
ZERO = int(HOW.removeprefix("zero")) if HOW.startswith("zero") else 0
DEEPSPEED = {
    "train_micro_batch_size_per_gpu": BATCH, "gradient_accumulation_steps": TURNS, "bf16": {"enabled": True},
    "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    "zero_optimization": {"stage": ZERO, "overlap_comm": True} | (
        {"offload_optimizer": {"device": "cpu"}} if choices["offload"] else {}),
}  # fmt: skip


def made():
    """The model, as users make it: in 4 or 8 bit as peft prepares it, the rest of it in 32, or as it is loaded."""
    dtype = torch.float32 if WIDE else HALF
    if ADAPTER not in QUANTISED:
        return AutoModelForCausalLM.from_config(config, dtype=dtype)
    from peft import prepare_model_for_kbit_training
    from transformers import BitsAndBytesConfig

    config.save_pretrained("model")
    how = BitsAndBytesConfig(**QUANTISED[ADAPTER])
    model = AutoModelForCausalLM.from_pretrained("model", config=config, dtype=dtype, quantization_config=how)
    return prepare_model_for_kbit_training(model, use_gradient_checkpointing=False) if choices["prepared"] else model


def fused(model):
    """With Liger's kernels, as the Trainer has them."""
    if choices["liger"]:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance

        _apply_liger_kernel_to_instance(model)
    return model


def adapted(model):
    """With adapters, if any."""
    if ADAPTER == "none":
        return model
    from peft import LoraConfig, get_peft_model

    names = [name for name in MATRICES if any(one.endswith("." + name) for one, _ in model.named_modules())]
    if RECOMPUTE != "none":
        model.enable_input_require_grads()
    settings = LoraConfig(r=16, lora_dropout=choices["dropout"], target_modules=names, task_type="CAUSAL_LM")
    return get_peft_model(model, settings)


def by_trainer():
    """The Trainer's own loop."""
    from transformers import Trainer, TrainingArguments

    more = {}
    if HOW in ("fsdp1", "fsdp2"):
        layer = choices["layer"]
        more = {"fsdp": "full_shard auto_wrap" if HOW == "fsdp1" else True,
                "fsdp_config": {"version": int(HOW[-1]), "transformer_layer_cls_to_wrap": [layer]}}
        if HOW == "fsdp1":  # as `accelerate config` has it unless it is told another
            more["fsdp_config"]["backward_prefetch"] = "backward_pre"
    if ZERO:
        more = {"deepspeed": DEEPSPEED}
    common = dict(
        output_dir="trained", max_steps=2, per_device_train_batch_size=BATCH, gradient_accumulation_steps=TURNS, report_to=[],
        bf16=choices["autocast"], gradient_checkpointing=RECOMPUTE != "none",
        gradient_checkpointing_kwargs={"use_reentrant": RECOMPUTE == "reentrant"} if RECOMPUTE != "none" else None,
        optim=choices["optimizer"], learning_rate=1e-4, use_liger_kernel=choices["liger"], **more,
    )  # fmt: skip
    arguments = TrainingArguments(**common)
    model = adapted(made())
    tokens = torch.randint(0, config.vocab_size, (BATCH * TURNS * WORLD * 4, SEQUENCE))
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    if DOOR == "sft":
        from datasets import Dataset
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast
        from trl import SFTConfig, SFTTrainer

        words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "a": 2}, unk_token="a"))
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
        settings = SFTConfig(**common, max_length=SEQUENCE)
        data = Dataset.from_dict({"input_ids": tokens.tolist()})
        trainer = SFTTrainer(model=model, args=settings, train_dataset=data, processing_class=tokenizer)
    else:
        trainer = Trainer(model=model, args=arguments, train_dataset=rows)
    trainer.train()


def by_loop():
    """A loop as people write it, which holds the model's outputs while it goes backward."""
    model = adapted(fused(made()))
    model.train()
    if RECOMPUTE != "none":
        model.gradient_checkpointing_enable({"use_reentrant": RECOMPUTE == "reentrant"})
    if ZERO:
        import deepspeed

        model, *_ = deepspeed.initialize(
            model=model, model_parameters=[one for one in model.parameters() if one.requires_grad], config=DEEPSPEED)
        for _ in range(10 * TURNS):
            tokens = torch.randint(0, config.vocab_size, (BATCH, SEQUENCE), device="cuda")
            outputs = model(input_ids=tokens, labels=tokens)
            model.backward(outputs.loss)
            model.step()
        return
    if WORLD > 1:
        torch.distributed.init_process_group("nccl")
    model = model.to("cuda")
    if HOW == "ddp":
        model = nn.parallel.DistributedDataParallel(model, device_ids=[LOCAL])
    trained = [one for one in model.parameters() if one.requires_grad]
    kind = choices["optimizer"]
    if kind == "adamw_8bit":
        from bitsandbytes.optim import AdamW8bit

        optimizer = AdamW8bit(trained, 1e-4)
    elif kind == "sgd":
        optimizer = torch.optim.SGD(trained, 1e-4)
    else:
        optimizer = torch.optim.AdamW(trained, 1e-4, fused=True if kind == "adamw_torch_fused" else None)
    for _ in range(10):
        for _ in range(TURNS):
            tokens = torch.randint(0, config.vocab_size, (BATCH, SEQUENCE), device="cuda")
            with torch.autocast("cuda", dtype=HALF, enabled=choices["autocast"]):
                outputs = model(input_ids=tokens, labels=tokens)
                loss = outputs.loss / TURNS
            loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()


by_loop() if DOOR == "loop" else by_trainer()
