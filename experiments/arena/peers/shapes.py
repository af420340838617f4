"""The model of a record as Hugging Face's `transformers` builds it, without its weights: what memory estimators count in."""

from importlib import import_module
from typing import Any


def built(record: dict) -> Any:
    """A model on the meta device."""
    torch, transformers = import_module("torch"), import_module("transformers")
    model = record["model"]
    if model.get("kind", "decoder") != "decoder" or model.get("experts") or model.get("kv_latent"):
        raise ValueError("a plain decoder is asked of it")
    if model.get("gated"):
        config: Any = transformers.LlamaConfig(
            hidden_size=model["hidden"], intermediate_size=model["feed_forward"], num_hidden_layers=model["layers"],
            num_attention_heads=model["heads"], num_key_value_heads=model["kv_heads"], head_dim=model["head_dim"],
            vocab_size=model["vocabulary"], tie_word_embeddings=bool(model.get("tied_embeddings")),
        )  # fmt: skip
    else:
        config = transformers.GPT2Config(
            n_embd=model["hidden"], n_inner=model["feed_forward"], n_layer=model["layers"], n_head=model["heads"],
            vocab_size=model["vocabulary"], n_positions=model.get("learned_positions") or record["plan"]["seq_len"],
        )  # fmt: skip
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config)


def unsplit(record: dict) -> dict:
    """The plan of a record that splits no layer, adapters or not."""
    plan: dict = record["plan"]
    degrees = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
    if any((plan.get(name) or 1) > 1 for name in degrees):
        raise ValueError("data parallelism alone is asked of it")
    return plan


def alone(record: dict) -> dict:
    """The plan of a record that splits no layer, which is all that these tools know."""
    plan = unsplit(record)
    if (plan.get("adapter") or "none") != "none":
        raise ValueError("adapters aren't asked of it")
    return plan
