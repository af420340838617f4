"""bitsandbytes: weights of a model of transformers in 4 or 8 bit, made without values, and paged optimizers. Tried on 0.50."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from costmodel.text.errors import NotModelled
from costmodel.traces.fake_machine.operators import argument
from costmodel.traces.fake_machine.recorder import Recorder


def patch(module: Any, recorder: Recorder) -> None:
    """States of paged optimizers (``bitsandbytes.functional``), which CUDA's driver keeps on the device while there is room."""

    def paged(*shape: int, dtype: torch.dtype = torch.float32, device: Any = None) -> Tensor:
        recorder.builder.assumed("States of paged optimizers taken to stay on the GPU.")
        made = torch.empty(shape, dtype=dtype, device=device or "cuda")
        made.is_paged, made.page_deviceid = True, made.device.index  # type: ignore[attr-defined]
        return made

    module.get_paged = paged
    module.fill = lambda tensor, value, device=None, prefetch=True: tensor.fill_(value)
    module.prefetch_tensor = lambda tensor, to_cpu=False: None


def asked(config: Any, given: Any) -> Any:
    """How a model's weights are to be quantised, by what `from_pretrained` is given or the model's configuration; None where not.

    Parameters
    ----------
    config : of the model
    given : ``quantization_config`` of the call, or None

    Raises
    ------
    NotModelled
        of another kind than bitsandbytes'
    """
    found = getattr(config, "quantization_config", None) if given is None else given
    if found is None:
        return None
    if isinstance(found, dict):
        from transformers import BitsAndBytesConfig

        method = str(found.get("quant_method", "bitsandbytes"))
        found = BitsAndBytesConfig.from_dict(found) if "bitsandbytes" in method else method
    if not (getattr(found, "load_in_4bit", False) or getattr(found, "load_in_8bit", False)):
        kind = getattr(found, "quant_method", found)
        raise NotModelled(f"a trace of weights quantised by {kind}: those of bitsandbytes in 4 and 8 bit are")
    return found


def quantised(model: Any, how: Any) -> None:
    """Put a model on the GPU, with the weights of its products, but for those of its head, in 4 or 8 bit.

    Parameters
    ----------
    model : of transformers, whose weights have no values
    how : ``BitsAndBytesConfig``
    """
    from transformers.quantizers.auto import AutoHfQuantizer

    head, left_out = model.get_output_embeddings(), tuple(how.llm_int8_skip_modules or ())
    last = list(model.named_parameters())[-1][0]  # a classifier's, as transformers finds it
    eight = bool(getattr(how, "load_in_8bit", False))
    for name, module in list(model.named_modules()):
        kept = module is head or last.startswith(f"{name}.") or any(word in name for word in left_out)
        if type(module) is not nn.Linear or kept:
            continue
        made = _in_eight(module, how) if eight else _in_four(module, how)
        made._parameters["bias"] = module.bias
        made.source_cls = nn.Linear
        made.train(module.training)
        model.set_submodule(name, made)
    nn.Module.to(model, "cuda")
    model.requires_grad_(False)
    setattr(model, "is_loaded_in_8bit" if eight else "is_loaded_in_4bit", True)
    model.is_quantized, model.hf_quantizer = True, AutoHfQuantizer.from_config(how, pre_quantized=False)
    model.config.quantization_config = how
    model.quantization_method = how.quant_method
    model.hf_device_map = {"": torch.cuda.current_device()}


def _in_four(module: nn.Linear, how: Any) -> Any:
    """A product whose weight bitsandbytes packs."""
    import bitsandbytes

    with torch.device("meta"):
        made = bitsandbytes.nn.Linear4bit(
            module.in_features, module.out_features, module.bias is not None, how.bnb_4bit_compute_dtype,
            compress_statistics=how.bnb_4bit_use_double_quant, quant_type=how.bnb_4bit_quant_type,
            quant_storage=how.bnb_4bit_quant_storage,
        )  # fmt: skip
    made._parameters["weight"] = _packed(module.weight, how)
    made.quant_state = made.weight.quant_state
    return made


def _in_eight(module: nn.Linear, how: Any) -> Any:
    """A product whose weight is a byte, with a scale in 32 bit for each row (``Int8Params``)."""
    import bitsandbytes

    with torch.device("meta"):
        made = bitsandbytes.nn.Linear8bitLt(
            module.in_features, module.out_features, module.bias is not None, has_fp16_weights=False,
            threshold=how.llm_int8_threshold,
        )  # fmt: skip
    with torch.no_grad():
        values = torch.empty(module.weight.shape, dtype=torch.int8, device="cuda")
        made.state.SCB = torch.empty(module.out_features, device="cuda")
    made._parameters["weight"] = nn.Parameter(values, requires_grad=False)
    made.weight.CB, made.weight.SCB, made.weight.has_fp16_weights = None, None, False
    made.state.CB = values
    return made


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


ops = torch.ops.bitsandbytes


def _quantised_rows(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """A scale for each row, and which columns have outliers, for which the host waits: none of values that nobody knows."""
    source, threshold = args[0], argument(func, args, kwargs, "threshold")
    columns = None
    with recorder:
        if threshold > 0.0:
            outliers = source.abs() >= threshold
            if outliers.any():
                columns = torch.argwhere(outliers.any(dim=0)).view(-1)
            else:
                columns = torch.empty(0, device=source.device, dtype=torch.int64)
        rows = torch.empty(source.shape, dtype=torch.int8, device=source.device)
        scales = torch.empty(source.numel() // source.shape[-1], device=source.device)
    recorder.record(func, "int8_vectorwise_quant", args, kwargs, [source], [rows, scales], (rows, scales))
    if columns is not None:
        with recorder:
            rows[:, columns] = 0
    return rows, scales, columns


def _mixed_product(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Columns with outliers in 16 bit, of which there are none, and the rest in 8."""
    hidden, rows, weight, row_scales, scales, columns = args[:6]
    if columns is not None and columns.numel():
        raise NotModelled(f"{recorder.where.line()}: products in 8 bit of inputs whose outliers a trace would know")
    with recorder:
        out = ops.int8_scaled_mm.default(
            rows, weight, row_scales, scales, bias=argument(func, args, kwargs, "bias"), dtype=hidden.dtype)
        return out, torch.empty(0, device=hidden.device, dtype=hidden.dtype)


def _scaled_product(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """A product summed in 32 bit, which a kernel scales to float16; that is cast."""
    rows, weight, row_scales, scales = args[:4]
    bias, dtype = argument(func, args, kwargs, "bias"), argument(func, args, kwargs, "dtype") or torch.float16
    with recorder:
        sums = torch._int_mm(rows, weight.t())
        out = ops.int8_mm_dequant.default(sums, row_scales, scales, dtype=torch.float16)
        if bias is not None:
            out.add_(bias)
        return out.to(dtype)


def _unpacked_product(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """A product of many rows with a weight in 4 bit, which is unpacked for it."""
    hidden, packed, shape, scales, block, kind = args[:6]
    bias, nested = argument(func, args, kwargs, "bias"), argument(func, args, kwargs, "absmax_8bit")
    with recorder:
        if nested is not None:
            code, offset = argument(func, args, kwargs, "absmax_code"), argument(func, args, kwargs, "absmax_offset")
            scales = ops.dequantize_blockwise.default(nested, scales, code, 256, torch.float32) + offset
        weight = ops.dequantize_4bit.default(packed, scales, block, kind, list(shape), hidden.dtype)
        return nn.functional.linear(hidden, weight, bias)


HANDLERS: dict[str, Callable[..., Any]] = {
    "int8_vectorwise_quant": _quantised_rows, "int8_mixed_scaled_mm": _mixed_product, "int8_scaled_mm": _scaled_product,
    "gemm_4bit": _unpacked_product,
}  # fmt: skip
"""Operators made of others, as bitsandbytes' CUDA kernels are (backends/cuda/ops.py, backends/default/ops.py)."""
