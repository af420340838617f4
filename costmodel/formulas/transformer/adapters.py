r"""Low-rank adapters beside frozen weights: their parameters and time, and what freezing changes elsewhere.

An adapter of rank :math:`r` adds :math:`B A x` to :math:`W x`, :math:`A` of :math:`r` rows and :math:`B` of :math:`r` columns:
:math:`r (n_\text{in} + n_\text{out})` parameters a matrix [hu2021]_. What is summed here are the inputs and outputs of the
matrices that have one, the sides.
"""

from __future__ import annotations

from typing import NamedTuple

from costmodel.arithmetic import ops
from costmodel.formulas.quantities import (
    AdapterChoice,
    AdapterTargets,
    DeviceNumbers,
    ModelNumbers,
    Number,
    PlanNumbers,
    Settings,
)
from costmodel.formulas.transformer import flops, lengths, precision

KINDS = ("none", "lora", "qlora", "gptq-lora", "int8-lora")
"""None trains every weight; the others train low-rank adapters [hu2021]_, the last three beside quantised weights: in NF4, as
bitsandbytes unpacks them [dettmers2023]_, in 4 bits as AutoGPTQ does, and in 8, as bitsandbytes multiplies them
[dettmers2022int8]_."""


class Packing(NamedTuple):
    """How quantised weights are held, and what it takes to multiply them."""

    parameter: float
    """Bytes that are held of one."""
    moved: float
    """Bytes of one, as if they went over the device's memory, to unpack it."""
    launches: float
    """Kernels that unpack a matrix, or quantise what it multiplies: of a pass, on average."""
    kept: float
    """1: what the forward pass unpacked is kept for the backward pass."""
    eighth: float = 0.0
    """1: the forward pass multiplies in 8 bit, and its products keep their inputs."""
    flop: float = 0.0
    """Operations in 32 bit, at the device's rate of those, that take as long as what decodes one."""


PACKED = {
    "qlora": Packing(precision.block_bytes(4.0, 8.0 + 32.0 / 256.0, 64.0), 2.64, 2.0, 0.0, flop=76.0),
    "gptq-lora": Packing(precision.block_bytes(4.0, 16.0 + 4.0, 128.0), 33.0, 10.0, 1.0),
    "int8-lora": Packing(precision.block_bytes(8.0, 32.0, 4096.0), 7.0, 6.0, 0.0, 1.0),
}
"""NF4 holds a block's scale in 8 bits and that of 256 scales in 32 [dettmers2023]_, unpacked by two kernels: one writes scales
in 32 bit, the other reads them and the codes and writes 16 bits. Decoding takes longer than memory on some devices: 150e9
parameters a second on an A100 of 19.5e12 operations/s in 32 bit, as Lightning-AI/litgpt@2685705 tutorials/resource-tables.md
has 79 ms a micro-batch more than LoRA at 7 billion parameters and 191 ms at 13, each unpacked once forward and once backward;
that was with `BRANCHED` code.

GPTQ holds a scale in 16 bits and a zero in 4 for 128 weights. AutoGPTQ/AutoGPTQ@9f7d370 auto_gptq/nn_modules/qlinear/
qlinear_cuda_old.py unpacks them by kernels of PyTorch, four for the zeros and six for the weights, which move 16.5 bytes of a
weight at half of what a stream reaches: 53e9 parameters a second on an A100, by the 27.4 s that QwenLM/Qwen@2df8e8a README.md
has for eight recomputed micro-batches of 256 tokens of Qwen-72B. Autograd keeps the product's operand.

In 8 bit each row has a scale in 32, a row is taken as 4,096 long. Backward they are copied in 16 bit, 3 bytes, and scaled, 4;
forward nine kernels more than the product run, backward three (bitsandbytes-foundation/bitsandbytes 0.50.2 bitsandbytes/autograd/
_functions.py, ``MatMul8bitLt``)."""
BRANCHED = 1.7
"""Time of decoding NF4 by branches over that from a table, since bitsandbytes 0.48: 1.36 to 2.07 on P100, A100 and H100 for all
sizes, 1.25 to 1.8 on a T4, and little on A10, L4 and RTX 4090, whose memory bounds it (bitsandbytes-foundation/bitsandbytes pull
requests 1746 and 1747)."""
EAGER = Packing(PACKED["qlora"].parameter, 33.0, 14.0, 0.0)
"""NF4 by kernels of PyTorch that nothing compiles, of two codes in a byte: each is shifted or masked, cast to an index of 64 bits
and looked up, a scale is copied for each and multiplied, and both are stacked (pytorch/ao@0598012 torchao/dtypes/nf4tensor.py,
``get_original_weight``)."""
EAGER_HELD = 14.0
"""Bytes of a weight that are there as these end: indices, what was looked up and scaled, and the result."""
RANK = 16.0
"""Of adapters where a plan doesn't say it."""
QUANTISED = float(KINDS.index("qlora"))
UNPACKED = Packing(0.0, 0.0, 0.0, 0.0)
OF_BITSANDBYTES = tuple(float(name in ("qlora", "int8-lora")) for name in KINDS)
_PACKED = tuple(zip(*(PACKED.get(name, UNPACKED) for name in KINDS), strict=True))


def packing(kind: Number) -> tuple[Number, Number, Number, Number, Number, Number]:
    """How frozen weights are held, as `Packing` says it; zeros where they are as they are multiplied.

    Parameters
    ----------
    kind : place of the adapter in `KINDS`
    """
    parameter, moved, kernels, kept, eighth, flop = _PACKED
    return (
        ops.pick(kind, parameter), ops.pick(kind, moved), ops.pick(kind, kernels), ops.pick(kind, kept), ops.pick(kind, eighth),
        ops.pick(kind, flop),
    )  # fmt: skip


def of_bitsandbytes(kind: Number) -> Number:
    """1 where bitsandbytes holds the frozen weights, and PEFT prepares what lies around them.

    Parameters
    ----------
    kind : place of the adapter in `KINDS`
    """
    return ops.pick(kind, OF_BITSANDBYTES)


def adapter_choice(
    kind: Number, rank: Number, targets: AdapterTargets, keep_inputs: Number, saves: Number, merged: Number, dropout: Number,
    lifted: Number, uncast: Number, wide: Number, edges: Number,
) -> AdapterChoice:  # fmt: skip
    """An adapter as a plan and a framework choose it, `AdapterChoice`.

    Parameters
    ----------
    kind : its place in `KINDS`
    rank : `RANK` if -1
    targets : matrices that have one
    keep_inputs : 1: products with weights in NF4 keep their inputs
    saves : 1: products save their inputs for the backward pass, though their weights don't train
    merged : 1: an adapter of queries, keys and values is one, and so is that of gate and up, as their matrices are
    dropout : 1: inputs of adapters are dropped out
    lifted : 1: adapters are in 32 bit beside weights in 16
    uncast : 1: nothing casts the operands of products, so that those of lifted adapters run in 32 bit
    wide : 1: the residual stream is in 32 bit
    edges : 1: copies of embedding and head train beside them

    Examples
    --------
    >>> everywhere = AdapterTargets(1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0)
    >>> adapter_choice(1.0, -1.0, everywhere, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0).rank
    16.0

    References
    ----------
    huggingface/peft 0.21.2 src/peft/tuners/lora/layer.py (``Linear.forward``: ``_cast_input_dtype``), bnb.py
    (``Linear4bit.forward``: ``requires_conversion``, unless autocast is on)
    """
    adapted = ops.where(kind > 0.5, 1.0, 0.0)
    packed, moved, kernels, kept, eighth, flop = packing(kind)
    casts_up = adapted * lifted * (1.0 - of_bitsandbytes(kind) * (1.0 - uncast))
    apart = adapted * ops.where(wide > 0.0, 1.0 - uncast, casts_up)
    return AdapterChoice(
        frozen=adapted, rank=adapted * ops.where(rank < 0.0, RANK, rank), query=adapted * targets.query,
        key=adapted * targets.key, value=adapted * targets.value, fused=adapted * targets.fused,
        output=adapted * targets.output, gate=adapted * targets.gate, up=adapted * targets.up, down=adapted * targets.down,
        merged=merged, dropout=adapted * dropout, lifted=casts_up, uncast=adapted * lifted * uncast, apart=apart,
        keep_inputs=ops.where(ops.equal(kind, QUANTISED), keep_inputs, 0.0),
        saves=adapted * ops.where(packed > 0.0, 0.0, saves), unpacked_bytes=moved, unpacked_flop=flop, unpacking_launches=kernels,
        keep_unpacked=kept, eighth=eighth, edges=adapted * edges,
    )  # fmt: skip


def joined_adapters(model: ModelNumbers, adapter: AdapterChoice) -> tuple[Number, Number]:
    """1 where queries, keys and values share one adapter, and 1 where gate and up do: they are one matrix, and each has one.

    References
    ----------
    huggingface/peft 0.21.2 src/peft/tuners/lora/layer.py (one ``lora_A`` of each module, such as Phi-3's ``gate_up_proj``)
    """
    one = ops.maximum(model.attention.fused, adapter.merged)
    every = ops.minimum(adapter.query, ops.minimum(adapter.key, adapter.value))
    both = model.mlp.gated * ops.minimum(adapter.gate, adapter.up)
    return ops.where(model.attention.latent > 0.0, 0.0, one * every), one * both


def attention_sides(model: ModelNumbers, adapter: AdapterChoice, tensor: Number) -> tuple[Number, Number]:
    """Inputs and outputs of the adapters of an average layer's attention on one rank.

    Parameters
    ----------
    tensor : ranks that split the outputs of the first projections and the inputs of the last
    """
    attention = model.attention
    latent = attention.latent > 0.0
    queries = attention.heads * attention.head_dim
    keys = attention.kv_heads * attention.head_dim
    compressed = attention.kv_latent + attention.rope_head_dim
    expanded = attention.heads * (attention.head_dim - attention.rope_head_dim + attention.value_head_dim)
    inner = ops.where(latent, attention.query_latent, 0.0)
    joined, _ = joined_adapters(model, adapter)
    query_in = model.hidden + inner
    key_in = ops.where(latent, 0.5 * (model.hidden + attention.kv_latent), model.hidden)  # two matrices for keys and values
    key_out = ops.where(latent, 0.5 * (compressed + expanded / tensor), keys / tensor)
    fused_out = ops.where(latent, inner + compressed, (queries + (1.0 + attention.value_rows) * keys) / tensor)
    value_rows = ops.where(latent, 1.0, attention.value_rows)
    first_in = adapter.query * query_in + (adapter.key + adapter.value * value_rows) * key_in + adapter.fused * model.hidden
    first_in = first_in - joined * (1.0 + value_rows) * model.hidden
    first_out = adapter.query * (inner + queries / tensor) + (adapter.key + adapter.value * value_rows) * key_out
    first_out = first_out + adapter.fused * fused_out
    last = adapter.output * attention.heads * attention.value_head_dim / tensor
    return attention.share * (first_in + last), attention.share * (first_out + adapter.output * model.hidden)


def mlp_sides(model: ModelNumbers, adapter: AdapterChoice, width: Number) -> tuple[Number, Number]:
    """Inputs and outputs of the adapters of one MLP.

    Parameters
    ----------
    width : inner width on this rank [channels]; 0 where there is none
    """
    there = ops.where(width > 0.0, 1.0, 0.0)
    first, (_, joined) = adapter.gate * model.mlp.gated + adapter.up, joined_adapters(model, adapter)
    inputs = (first - joined) * model.hidden + adapter.down * width
    return there * inputs, there * (first * width + adapter.down * model.hidden)


def dense_sides(model: ModelNumbers, adapter: AdapterChoice, width: Number) -> tuple[Number, Number]:
    """Inputs and outputs of the adapters of an average layer without experts, as `mlp_sides`.

    Parameters
    ----------
    width : inner width on this rank [channels]
    """
    inputs, outputs = mlp_sides(model, adapter, width)
    return model.mlp.share * inputs, model.mlp.share * outputs


def adapter_parameters(model: ModelNumbers, adapter: AdapterChoice) -> Number:
    """Parameters of the adapters of a whole model, each expert with its own.

    References
    ----------
    [hu2021]_ section 4.2

    Examples
    --------
    Rank 16 on the fused first projection and the last one, as in MLPerf's fine-tune of Llama 2 70B.

    >>> from costmodel import load_model
    >>> chosen = AdapterChoice(1.0, 16.0, 0.0, 0.0, 0.0, 1.0, 1.0, *[0.0] * 16)
    >>> adapter_parameters(load_model("llama2-70b").numbers(), chosen)
    44564480.0
    """
    share = model.experts.layers / model.layers
    attention = attention_sides(model, adapter, 1.0)
    dense = dense_sides(model, adapter, model.mlp.width)
    shared = mlp_sides(model, adapter, model.experts.shared_width)
    routed = mlp_sides(model, adapter, model.experts.width)
    sparse = shared[0] + shared[1] + model.experts.number * (routed[0] + routed[1])
    sides = attention[0] + attention[1] + (1.0 - share) * (dense[0] + dense[1]) + share * sparse
    return adapter.rank * model.layers * sides


def trained_share(model: ModelNumbers, settings: Settings, nparameters: Number) -> Number:
    """Share of a model's parameters that trains: 1, or that of its adapters.

    Copies of embedding and head that train beside them are counted by their bytes: as many parameters of adapters as are as wide
    as they are, weights, gradients and moments alike. A matrix that is both has two copies.

    Parameters
    ----------
    nparameters : of the model without them

    References
    ----------
    huggingface/peft v0.21.0 src/peft/utils/other.py, ``ModulesToSaveWrapper``
    """
    adapter, widths = settings.adapter, settings.widths
    narrower = ops.where(widths.adapter > 0.0, edge_bytes(settings) / ops.maximum(widths.adapter, 1.0), 1.0)
    edges = adapter.edges * model.hidden * (model.vocabulary.size + model.vocabulary.outputs)
    return ops.where(adapter.frozen > 0.0, (adapter_parameters(model, adapter) + narrower * edges) / nparameters, 1.0)


def gradient_share(settings: Settings, plan: PlanNumbers) -> Number:
    """Share of the parameters whose gradients are made and summed: of those that train, or of all in units of layers that FSDP1
    flattens whole, adapters and frozen weights together, as autograd's gradient of a flat parameter is as long as that.

    References
    ----------
    pytorch/pytorch@v2.13.0 torch/distributed/fsdp/_flat_param.py (``_use_unsharded_views``: a split of the flat parameter),
    fully_sharded_data_parallel.py (``use_orig_params``: "it's recommended to avoid doing so to prevent higher than expected
    gradient memory usage")
    """
    flat = settings.framework.mixed_units * settings.adapter.frozen * plan.shard_gradients
    several = plan.data * plan.context > 1.0
    return ops.where((flat > 0.0) & several, 1.0, settings.trainable)


def frozen_gradients(settings: Settings, plan: PlanNumbers) -> Number:
    """Share of the parameters that don't train and have gradients nevertheless, `gradient_share`."""
    return gradient_share(settings, plan) - settings.trainable


def edge_bytes(settings: Settings) -> Number:
    """Bytes of a parameter of embedding and head, which aren't quantised: their own, or those of a residual stream in 32 bit."""
    widths = settings.widths
    return ops.maximum(widths.parameter, ops.where(widths.residual < precision.FULL_BYTES, 0.0, widths.residual))


def adapter_work(
    model: ModelNumbers, settings: Settings, plan: PlanNumbers, tokens: Number, device: DeviceNumbers,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """Forward, data-gradient and weight-gradient time of an average layer's adapters on one rank [s].

    Their products are thin and bound by memory. Forward the input is dropped out (read, written, a mask of a byte) and read; the
    wide product is written, scaled, and added to that of the frozen weight. Backward the same from the other side; for their
    gradients they read both. A dropout of nothing gives its input back. Inputs of lifted adapters are cast up before the dropout,
    and down again for the product where operands are cast; their gradients likewise. Where they aren't, the product, its scaling
    and the sum are in 32 bit, which is cast down. What is in 32 bit already isn't cast up, and its gradients are added so: behind
    norms that are, and of products of quantised weights, which are as wide as what they read.

    Fused, the product that makes the output scales it and adds it to the frozen weight's, which it reads and writes; the one that
    makes the input's gradient reads what it adds, and nothing writes a scaled gradient. Unsloth's kernels do so, too, and keep no
    thin product: for the adapters' gradients they make both again.

    Parameters
    ----------
    tokens : of a micro-batch on this rank

    References
    ----------
    NVIDIA/NeMo@0044d77 nemo/collections/llm/peft/lora.py, ``TEFusedLoRALinear``; NVIDIA/TransformerEngine@d0067d0
    transformer_engine/pytorch/ops/fused/forward_linear_scale_add.py, backward_linear_add.py, backward_linear_scale.py;
    unslothai/unsloth@015bdef0 unsloth/kernels/fast_lora.py, ``LoRA_MLP.backward``, utils.py, ``matmul_lora``;
    huggingface/peft@3d9ceb5 src/peft/tuners/lora.py, ``Linear.forward``: dropout, two products, a scaling and a sum; @5d602fd
    src/peft/tuners/lora/layer.py, ``_cast_input_dtype``
    """
    adapter, bytes_ = settings.adapter, settings.widths.activation
    inputs, outputs = _sides_of_rank(model, adapter, plan)
    unpacked = ops.where(adapter.unpacked_bytes > 0.0, 1.0, 0.0)
    of_wide, _ = _sides_of_rank(model, adapter._replace(output=0.0, down=adapter.down * unpacked), plan)
    wide = wide_stream(settings) * of_wide / ops.maximum(inputs, 1.0)  # share of the inputs
    moved = tokens / device.memory_bandwidth
    cast = bytes_ + precision.FULL_BYTES  # reads one width and writes the other
    lifted = ops.maximum(adapter.lifted, wide)
    up, down = adapter.lifted * (1.0 - wide) * cast, (1.0 - adapter.uncast) * lifted * cast
    dropped = adapter.dropout * (2.0 * (bytes_ + lifted * (precision.FULL_BYTES - bytes_)) + 1.0)
    multiplied = operand_bytes(settings)
    again = settings.framework.added_adapters
    fused = ops.maximum(settings.kernels.fused_operators, again)
    sums = (6.0 - 4.0 * fused) * bytes_ + adapter.uncast * (4.0 * precision.FULL_BYTES)
    sums_back = (3.0 - 2.0 * fused) * bytes_ + adapter.uncast * (bytes_ + 4.0 * precision.FULL_BYTES)
    added = (3.0 - 2.0 * fused) * (bytes_ + wide * (precision.FULL_BYTES - bytes_))
    products = 2.0 * adapter.rank * tokens * (inputs + outputs) / (device.sustained_clock * device.base_flop_rate)
    there = adapter.frozen * ops.where(adapter.rank > 0.0, 1.0, 0.0)
    return (
        there * ops.maximum(moved * ((multiplied + up + dropped + down) * inputs + sums * outputs), products),
        there * ops.maximum(moved * ((added + multiplied + up + dropped + down) * inputs + sums_back * outputs), products),
        there * ops.maximum((1.0 + again) * moved * multiplied * (inputs + outputs), (1.0 + again) * products),
    )


def _sides_of_rank(model: ModelNumbers, adapter: AdapterChoice, plan: PlanNumbers) -> tuple[Number, Number]:
    """Inputs and outputs of the adapters of an average layer on one rank, of experts as often as a token comes to one."""
    share = model.experts.layers / model.layers
    attention = attention_sides(model, adapter, plan.tensor)
    dense = dense_sides(model, adapter, model.mlp.width / plan.tensor)
    shared = mlp_sides(model, adapter, model.experts.shared_width / plan.tensor)
    routed = mlp_sides(model, adapter, model.experts.width / plan.expert_tensor)
    visits = model.experts.load * model.experts.per_token * plan.expert_tensor / plan.tensor
    inputs = attention[0] + (1.0 - share) * dense[0] + share * (shared[0] + visits * routed[0])
    return inputs, attention[1] + (1.0 - share) * dense[1] + share * (shared[1] + visits * routed[1])


def operand_bytes(settings: Settings) -> Number:
    """Bytes of an element that adapters' products read, which is what they keep of their inputs."""
    return ops.where(settings.adapter.uncast > 0.0, precision.FULL_BYTES, settings.widths.activation)


def dequantisation(settings: Settings, nparameters: Number, device: DeviceNumbers) -> Number:
    """Time to unpack quantised weights once [s]; 0 where they are stored as they are multiplied.

    Memory or what decodes them bounds it. Those in 8 bit are copied and scaled, in the width of what they are multiplied with.

    Parameters
    ----------
    nparameters : that the pass multiplies
    """
    adapter, wider = settings.adapter, settings.widths.residual - settings.widths.activation
    eager = unpacks_eagerly(settings)
    moved = ops.where(eager > 0.0, EAGER.moved, adapter.unpacked_bytes + adapter.eighth * 3.0 * wider) / device.memory_bandwidth
    slower = (1.0 - eager) * ops.where(settings.framework.branched_unpacking > 0.0, BRANCHED, 1.0)
    return nparameters * ops.maximum(moved, slower * adapter.unpacked_flop / device.vector_flop_rate)


def unpacks_eagerly(settings: Settings) -> Number:
    """1 where kernels of PyTorch unpack weights in NF4 one after the other."""
    return settings.framework.eager_unpacking * (1.0 - settings.framework.compiled) * ops.where(
        settings.adapter.unpacked_flop > 0.0, 1.0, 0.0)


def eighth_casts(model: ModelNumbers, settings: Settings, plan: PlanNumbers, tokens: Number, device: DeviceNumbers) -> Number:
    """Time by which an average layer's forward pass quantises inputs of products in 8 bit, and scales their results [s].

    An input is cast to 16 bit, compared with what makes an outlier (three kernels, which move 8 bytes), and quantised with a
    scale for each row; a product's sums in 32 bit are written, scaled to 16 bit, and cast to the width of the input.

    Parameters
    ----------
    tokens : of a micro-batch on this rank

    References
    ----------
    bitsandbytes-foundation/bitsandbytes 0.50.2 bitsandbytes/autograd/_functions.py (``MatMul8bitLt``), backends/cuda/ops.py
    (``int8_vectorwise_quant``, ``int8_mm_dequant``)
    """
    every = settings.adapter._replace(query=1.0, key=1.0, value=1.0, fused=0.0, output=1.0, gate=1.0, up=1.0, down=1.0)
    share, read = model.experts.layers / model.layers, settings.widths.residual
    attention = attention_sides(model, every, plan.tensor)
    dense = dense_sides(model, every, model.mlp.width / plan.tensor)
    inputs, outputs = attention[0] + (1.0 - share) * dense[0], attention[1] + (1.0 - share) * dense[1]
    moved = ((read + 2.0) + 8.0 + 3.0) * inputs + (2.0 + 6.0 + 2.0 + read) * outputs
    return settings.adapter.eighth * tokens * moved / device.memory_bandwidth


def autocasts(settings: Settings) -> Number:
    """1 where weights are in 32 bit and cast to 16 where they are multiplied; what isn't a product stays in 32.

    References
    ----------
    pytorch/pytorch torch/amp/autocast_mode.py; aten/src/ATen/autocast_mode.h
    """
    narrow = ops.where(settings.widths.activation < precision.FULL_BYTES, 1.0, 0.0)
    wide = ops.where(settings.widths.parameter < precision.FULL_BYTES, 1.0 - settings.adapter.frozen, 1.0)
    return settings.framework.autocast * wide * narrow


def wide_stream(settings: Settings) -> Number:
    """1 where the hidden state between blocks is in 32 bit beside activations in 16."""
    wider = ops.where(settings.widths.residual > settings.widths.activation, 1.0, 0.0)
    return ops.maximum(autocasts(settings), wider)


def in_autocast(settings: Settings) -> Number:
    """1 where what isn't a product runs in PyTorch's autocast beside products in 16 bit, whatever the weights."""
    narrow = ops.where(settings.widths.compute < precision.FULL_BYTES, 1.0, 0.0)
    return ops.maximum(autocasts(settings), settings.framework.autocast_context * narrow)


def casts_head(settings: Settings) -> Number:
    """1 where the head's weight is cast to 16 bit as it is multiplied, as all weights are or as one beside a base in NF4."""
    return ops.maximum(autocasts(settings), ops.where(settings.widths.residual > settings.widths.activation, 1.0, 0.0))


def unpacked_weights(settings: Settings, nparameters: Number) -> Number:
    """Bytes of weights that stay unpacked, or as they were cast, from the forward to the backward pass.

    Parameters
    ----------
    nparameters : that the pass multiplies
    """
    return (settings.adapter.keep_unpacked + autocasts(settings)) * nparameters * settings.widths.input


def kept_inputs(adapter: AdapterChoice, separate: Number) -> tuple[Number, Number, Number, Number]:
    """Copies that products keep of their inputs: of the first projections, the last, the MLP's first and last.

    One for a weight gradient. A frozen product keeps nothing; its adapter keeps the input, and where that is dropped out or cast,
    each adapter its own. Of quantised products some keep theirs all the same, those in 8 bit always: the same one as adapters
    that neither drop out nor cast it.

    Parameters
    ----------
    separate : 1: queries, keys and values are products of their own, and gate and up, each with an adapter

    References
    ----------
    PyTorch's linear saves its input where its weight requires a gradient; so do NVIDIA/TransformerEngine@d0067d0
    transformer_engine/pytorch/module/linear.py and NVIDIA/Megatron-LM@d98e8a6 ``LinearWithFrozenWeight``; bitsandbytes 0.42
    bitsandbytes/autograd/_functions.py, ``MatMul4Bit`` (``ctx.tensors = (A, B)``); peft 0.21 peft/tuners/lora/layer.py
    (``lora_dropout`` of each layer); bitsandbytes 0.50.2 (``MatMul8bitLt``: ``ctx.tensors = (CAt, subA, A)``);
    Lightning-AI/litgpt@2685705 litgpt/lora.py (``LoRAQKVLinear``: one of all three)
    """
    own = keeps_own(adapter)
    projections, gated = adapter.query + adapter.key + adapter.value, adapter.gate + adapter.up
    apart, out_apart = ops.maximum(adapter.dropout, adapter.apart), ops.maximum(adapter.dropout, adapter.lifted)
    of_each = adapter.fused + ops.where(separate > 0.0, projections, ops.minimum(projections, 1.0))
    of_both = ops.where(separate > 0.0, gated, ops.minimum(gated, 1.0))
    return (
        ops.where(apart > 0.0, own + of_each, ops.maximum(own, ops.minimum(projections + adapter.fused, 1.0))),
        ops.where(out_apart > 0.0, own + adapter.output, ops.maximum(own, adapter.output)),
        ops.where(apart > 0.0, own + of_both, ops.maximum(own, ops.minimum(gated, 1.0))),
        ops.where(apart > 0.0, own + adapter.down, ops.maximum(own, adapter.down)),
    )  # fmt: skip


def keeps_own(adapter: AdapterChoice) -> Number:
    """1 where a product itself keeps its input: all do but those of frozen weights."""
    return 1.0 - adapter.frozen * (1.0 - ops.maximum(adapter.saves, ops.maximum(adapter.keep_inputs, adapter.eighth)))


def input_bytes(model: ModelNumbers, settings: Settings) -> tuple[Number, Number, Number, Number]:
    """Bytes a channel that products keep of their inputs: of the first projections, the last, the MLP's first and last.

    Beside each input that was dropped out its mask, a byte a channel. Products in 8 bit keep what they read as it comes: in 32
    bit behind norms that are, but for the attention's output.
    """
    width, apart = settings.widths.input, settings.framework.separate_projections * (1.0 - model.attention.fused)
    adapter = settings.adapter._replace(gate=settings.adapter.gate * model.mlp.gated)
    first, last, mlp_first, mlp_last = kept_inputs(adapter, apart)
    masked = ops.where(adapter.uncast > 0.0, precision.FULL_BYTES, width) + adapter.dropout
    own = keeps_own(adapter) * (width - masked)  # which isn't an adapter's
    read = own + adapter.eighth * (settings.widths.residual - width)
    return first * masked + read, last * masked + own, mlp_first * masked + read, mlp_last * masked + read


def inner_channels(model: ModelNumbers, adapter: AdapterChoice) -> Number:
    """Channels a token between the two matrices of an average layer's adapters, which the second keeps as its input."""
    share = model.experts.layers / model.layers
    first = adapter.query + adapter.key + adapter.value * model.attention.value_rows
    both = adapter.gate * model.mlp.gated + adapter.up
    every_joined, both_joined = joined_adapters(model, adapter)
    attention = first - every_joined * (1.0 + model.attention.value_rows) + adapter.fused + adapter.output
    mlp = both - both_joined + adapter.down
    shared = ops.where(model.experts.shared_width > 0.0, 1.0, 0.0)
    times = (1.0 - share) * model.mlp.share + share * (model.experts.per_token * model.experts.load + shared)
    return adapter.rank * (model.attention.share * attention + times * mlp)


def gathered_width(settings: Settings, plan: PlanNumbers) -> Number:
    """Bytes that are gathered of each parameter: all of it where weights are sharded, else what was updated."""
    widths = settings.widths
    updated = ops.where(settings.adapter.frozen > 0.0, widths.parameter, widths.stored) * settings.trainable
    return ops.where(plan.shard_weights > 0.0, widths.stored, updated)


def model_flop_per_token(model: ModelNumbers, settings: Settings, causal: Number) -> Number:
    """FLOP of forward and backward per token, nothing recomputed; frozen weights have no gradient, adapters count.

    Parameters
    ----------
    causal : 1 counts keys below the diagonal only

    References
    ----------
    [hu2021]_
    """
    length, power = lengths.own_length(settings), lengths.position_power(settings)
    whole = flops.model_flop_per_token(model, length, causal, power)
    layers = (model.layers + model.prediction_layers) * model.layer_tokens
    cores = layers * flops.core_flop(model, length, causal, power)
    gradients = flops.forward_flop_per_token(model, length, causal, power) - cores
    adapter = settings.adapter
    of_head = 2.0 * adapter.edges * model.hidden * model.vocabulary.outputs
    return whole + adapter.frozen * (6.0 * adapter_parameters(model, adapter) + of_head - gradients)
