"""bitsandbytes in a model of transformers: weights in 4 bit, made without values on the GPU. Tried on bitsandbytes 0.50."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from costmodel.text.errors import NotModelled


def asked(config: Any, given: Any) -> Any:
    """How a model's weights are to be quantised, by what `from_pretrained` is given or the model's configuration; None where not.

    Parameters
    ----------
    config : of the model
    given : ``quantization_config`` of the call, or None

    Raises
    ------
    NotModelled
        of another kind than 4 bit of bitsandbytes
    """
    found = getattr(config, "quantization_config", None) if given is None else given
    if found is None:
        return None
    if isinstance(found, dict):
        from transformers import BitsAndBytesConfig

        method = str(found.get("quant_method", "bitsandbytes"))
        found = BitsAndBytesConfig.from_dict(found) if "bitsandbytes" in method else method
    if not getattr(found, "load_in_4bit", False):
        kind = "in 8 bit" if getattr(found, "load_in_8bit", False) else f"quantised by {getattr(found, 'quant_method', found)}"
        raise NotModelled(f"a trace of weights {kind}: those of bitsandbytes in 4 bit are, as QLoRA has them")
    return found


def quantised(model: Any, how: Any) -> None:
    """Put a model on the GPU, with the weights of its products, but for those of its head, in 4 bit.

    Parameters
    ----------
    model : of transformers, whose weights have no values
    how : ``BitsAndBytesConfig``
    """
    import bitsandbytes

    head, left_out = model.get_output_embeddings(), tuple(how.llm_int8_skip_modules or ())
    last = list(model.named_parameters())[-1][0]  # a classifier's, as transformers finds it
    for name, module in list(model.named_modules()):
        kept = module is head or last.startswith(f"{name}.") or any(word in name for word in left_out)
        if type(module) is not nn.Linear or kept:
            continue
        with torch.device("meta"):
            made = bitsandbytes.nn.Linear4bit(
                module.in_features, module.out_features, module.bias is not None, how.bnb_4bit_compute_dtype,
                compress_statistics=how.bnb_4bit_use_double_quant, quant_type=how.bnb_4bit_quant_type,
                quant_storage=how.bnb_4bit_quant_storage,
            )  # fmt: skip
        made._parameters |= {"weight": _packed(module.weight, how), "bias": module.bias}
        made.quant_state = made.weight.quant_state
        made.source_cls = nn.Linear
        made.train(module.training)
        model.set_submodule(name, made)
    nn.Module.to(model, "cuda")
    model.requires_grad_(False)
    model.is_loaded_in_4bit = model.is_quantized = True
    model.config.quantization_config = how
    model.quantization_method = how.quant_method
    model.hf_device_map = {"": torch.cuda.current_device()}


def _packed(weight: Tensor, how: Any) -> nn.Parameter:
    """A weight as bitsandbytes packs it."""
    from bitsandbytes.functional import quantize_4bit

    with torch.no_grad():
        values, state = quantize_4bit(
            weight.detach().to("cuda"), compress_statistics=how.bnb_4bit_use_double_quant, quant_type=how.bnb_4bit_quant_type,
            quant_storage=how.bnb_4bit_quant_storage,
        )  # fmt: skip
    packed = nn.Parameter(values, requires_grad=False)
    packed.quant_state, packed.bnb_quantized, packed.quant_storage = state, True, how.bnb_4bit_quant_storage  # type: ignore[attr-defined]
    packed.quant_type, packed.compress_statistics = how.bnb_4bit_quant_type, how.bnb_4bit_use_double_quant  # type: ignore[attr-defined]
    return packed
