"""Trains a Hugging Face decoder that is all vocabulary: `loss.py KIND`, how its loss is made and what its loop keeps."""

import sys

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

BATCH, SEQUENCE, VOCABULARY = 2, 512, 65536
(kind,) = sys.argv[1:]
config = AutoConfig.for_model(
    "gemma2" if kind == "capped" else "llama", hidden_size=8, intermediate_size=8,
    num_attention_heads=1, num_key_value_heads=1, vocab_size=VOCABULARY,
    num_hidden_layers=1, use_cache=False, head_dim=8,
)  # fmt: skip
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="eager").cuda().train()
tokens = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE))


def narrow(keep: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A loss in the dtype of the logits, and these where a loop keeps them."""
    logits = model(input_ids=tokens).logits
    shifted = logits[:, :-1].reshape(-1, VOCABULARY)
    return cross_entropy(shifted, tokens[:, 1:].reshape(-1)), logits if keep else None


if kind == "trainer":
    arguments = TrainingArguments(output_dir="trained", max_steps=3, per_device_train_batch_size=BATCH, report_to=[])
    rows = [{"input_ids": row, "labels": row} for row in tokens.repeat(8, 1)]
    Trainer(model=model, args=arguments, train_dataset=rows).train()
    sys.exit()
tokens = tokens.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    if kind == "upcast-kept":
        outputs = model(input_ids=tokens, labels=tokens)
        loss = outputs.loss
    elif kind in ("upcast", "capped"):
        loss = model(input_ids=tokens, labels=tokens).loss
    else:
        loss, logits = narrow(keep=kind == "16-bit-kept")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
