"""Fine-tunes a Hugging Face decoder in bfloat16 on one GPU, with all weights or with adapters.

What ljm565/universal-llm-trainer does by its files config/llm_*_lora.yaml and llm_*_full.yaml: Hugging Face's recomputation, a
loss over 16-bit logits that keeps them until the step ends, gradients of many micro-batches in one, AdamW.
"""

import argparse
import json

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def main():
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=8192)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--targets", default="")
    parser.add_argument("--steps", type=int, default=4)
    asked = parser.parse_args()
    config = AutoConfig.for_model(**json.loads(asked.config))
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.bfloat16)
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    if asked.targets:
        from peft import LoraConfig, get_peft_model

        targets = asked.targets.split(",")
        model = get_peft_model(
            model, LoraConfig(r=asked.rank, lora_alpha=16, lora_dropout=0.05, target_modules=targets, task_type="CAUSAL_LM")
        )
    model.train()
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=5e-5)
    criterion = torch.nn.CrossEntropyLoss()
    for _ in range(asked.steps):
        for _ in range(asked.accumulate):
            tokens = torch.randint(0, config.vocab_size, (asked.micro_batch, asked.seq_len)).to("cuda")
            logits = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits
            loss = criterion(logits[:, :-1, :].reshape(-1, logits.size(-1)), tokens[:, 1:].reshape(-1))
            del logits
            (loss / asked.accumulate).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
