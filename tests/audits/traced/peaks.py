"""Fine-tunes a Hugging Face decoder, as a JSON of choices says: `peaks.py CHOICES`.

By transformers' Trainer, TRL's `SFTTrainer` or a plain loop, on one GPU, by DDP, FSDP1, FSDP2 or a stage of DeepSpeed's ZeRO.
Weights in NF4 have a stand-in that holds, unpacks and multiplies what bitsandbytes 0.50 does, and so has its AdamW of 8-bit
moments.
"""

import json
import os
import sys

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, AutoModelForCausalLM

choices = json.loads(sys.argv[1])
HALF = torch.bfloat16
HOW, DOOR, ADAPTER = choices["how"], choices["door"], choices["adapter"]
BATCH, SEQUENCE, TURNS = choices["micro_batch"], choices["seq_len"], choices["accumulation"]
WIDE, RECOMPUTE = choices["weights"] == "fp32", choices["recompute"]
MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj",
            "query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")  # fmt: skip


class Unpacked(torch.autograd.Function):
    """A product with a matrix in NF4, unpacked for each pass (bitsandbytes autograd/_functions.py ``MatMul4Bit``)."""

    @staticmethod
    def forward(ctx, hidden, packed, scales, shape):
        ctx.packed, ctx.shape = packed, shape
        return hidden.new_empty((*hidden.shape[:-1], shape[0])).add_(1.0)

    @staticmethod
    def backward(ctx, gradient):
        weight = torch.empty(ctx.shape, dtype=gradient.dtype, device=gradient.device)
        return torch.matmul(gradient, weight), None, None, None


class Packed(nn.Module):
    """A product of weights in NF4, half a byte of each, with a scale of a byte for 64 and one of four for 16,384."""

    def __init__(self, linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        count, device = linear.weight.numel(), linear.weight.device
        self.weight = nn.Parameter(torch.zeros((count // 2, 1), dtype=torch.uint8, device=device), requires_grad=False)
        self.register_buffer("scales", torch.zeros(count // 64 + count // 4096, dtype=torch.uint8, device=device))

    def forward(self, hidden):
        """In bfloat16, given back in the dtype of the input."""
        shape = (self.out_features, self.in_features)
        return Unpacked.apply(hidden.to(HALF), self.weight, self.scales, shape).to(hidden.dtype)


def packed(model):
    """The matrices of layers in NF4, and the rest in 32 bit (peft utils/other.py ``prepare_model_for_kbit_training``)."""
    for module in list(model.base_model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and name in MATRICES:
                setattr(module, name, Packed(child))
    for parameter in model.parameters():
        parameter.requires_grad = False
        if parameter.dtype == HALF:
            parameter.data = parameter.data.float()
    return model


class Quantised(torch.optim.Optimizer):
    """AdamW with both moments in 8 bit, and a scale of each for 256 (bitsandbytes optim/optimizer.py ``Optimizer2State``)."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        """A kernel for each tensor."""
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is None:
                    continue
                state, width = self.state[one], torch.uint8 if one.numel() >= 4096 else torch.float32
                if not state:
                    for name in ("state1", "state2"):
                        state[name] = torch.zeros_like(one, dtype=width)
                        state[f"{name}_scales"] = torch.zeros(-(-one.numel() // 256), device=one.device)
                one.add_(one.grad, alpha=-group["lr"])


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
    """The model, adapters and all, as users make it."""
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32 if WIDE else HALF)
    if ADAPTER == "qlora":
        model = packed(model)
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
    if ADAPTER == "qlora":  # adapters of a stand-in are those of an ordinary product
        for module in list(model.modules()):
            for child, one in list(module.named_children()):
                if isinstance(one, Packed):
                    setattr(module, child, Adapted(one, settings))
        return model
    return get_peft_model(model, settings)


class Adapted(nn.Module):
    """A product of NF4 with its adapter (peft tuners/lora/bnb.py ``Linear4bit``), whose matrices are in 32 bit."""

    def __init__(self, base, settings):
        super().__init__()
        self.base_layer, device = base, base.weight.device
        self.lora_A = nn.Linear(base.in_features, settings.r, bias=False, device=device)
        self.lora_B = nn.Linear(settings.r, base.out_features, bias=False, device=device)
        self.dropout = nn.Dropout(settings.lora_dropout) if settings.lora_dropout else nn.Identity()

    def forward(self, hidden):
        """The product and what the adapter adds to it."""
        result = self.base_layer(hidden).clone()
        convert = not torch.is_autocast_enabled("cuda")
        expected = result.dtype
        if convert:
            hidden = hidden.to(self.lora_A.weight.dtype)
        output = self.lora_B(self.lora_A(self.dropout(hidden))) * 2.0
        if convert:
            output = output.to(expected)
        return result + output


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
        optim=choices["optimizer"] if choices["optimizer"] != "adamw_8bit" else "adamw_torch", learning_rate=1e-4, **more,
    )  # fmt: skip
    arguments = TrainingArguments(**common)
    model = adapted(made())
    tokens = torch.randint(0, config.vocab_size, (BATCH * TURNS * WORLD * 4, SEQUENCE))
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    quantised = choices["optimizer"] == "adamw_8bit"
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
    if quantised:
        trainer.optimizer = Quantised([one for one in trainer.model.parameters() if one.requires_grad], 1e-4)
    trainer.train()


def by_loop():
    """A loop as people write it, which holds the model's outputs while it goes backward."""
    model = adapted(made())
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
    optimizer = (
        Quantised(trained, 1e-4) if kind == "adamw_8bit" else torch.optim.SGD(trained, 1e-4) if kind == "sgd"
        else torch.optim.AdamW(trained, 1e-4, fused=True if kind == "adamw_torch_fused" else None)
    )  # fmt: skip
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
