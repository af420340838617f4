"""The parameter tensors of a Transformer, one by one: what buckets of gradients and gathers of weights are made of."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from costmodel.description.transformer import AttentionShape, Transformer

Integers = NDArray[np.int64]


class Tensor(NamedTuple):
    """One parameter tensor."""

    name: str  # as a checkpoint would call it
    shape: tuple[int, ...]  # rows first
    part: str  # ``"embedding"``, ``"layer"``, ``"head"`` or ``"prediction"``
    split: bool = False  # divided over the tensor ranks (over the expert-tensor ranks where `routed`), or whole on each
    routed: bool = False  # belongs to a routed expert
    keys: int = 0  # rows that project to keys and values, of which a tensor rank holds at least one head
    inward: bool = False  # split along its columns, so that what the ranks make of it is summed

    @property
    def numel(self) -> int:
        """Elements of the whole tensor."""
        return math.prod(self.shape)

    def local(self, ranks: int, kv_heads: int) -> tuple[float, float]:
        """Rows and columns that one of `ranks` tensor ranks holds.

        Parameters
        ----------
        ranks : over which the tensor is divided
        kv_heads : of the model: no rank holds less than one
        """
        columns = math.prod(self.shape[1:])
        if not self.split:
            return float(self.shape[0]), float(columns)
        if self.inward:
            return float(self.shape[0]), columns / ranks
        return (self.shape[0] - self.keys) / ranks + self.keys / min(ranks, kv_heads), float(columns)


class _Names(NamedTuple):
    """How a family of checkpoints calls its tensors."""

    layer: str
    attention: str
    mlp: str
    embedding: str
    positions: str
    embedding_norm: str
    norms: tuple[str, ...]
    last_norm: str
    head: str
    inputs: tuple[str, ...]
    output: str
    projection: str


_BLOOM = _Names(
    "transformer.h.", "self_attention.", "mlp.", "transformer.word_embeddings", "transformer.position_embeddings",
    "transformer.word_embeddings_layernorm", ("input_layernorm", "post_attention_layernorm"), "transformer.ln_f",
    "lm_head", ("dense_h_to_4h",), "dense_4h_to_h", "dense",
)  # fmt: skip
_LLAMA = _Names(
    "model.layers.", "self_attn.", "mlp.", "model.embed_tokens", "model.embed_positions", "model.embed_norm",
    ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"),
    "model.norm", "lm_head", ("gate_proj", "up_proj"), "down_proj", "o_proj",
)  # fmt: skip


def _names(model: Transformer) -> _Names:
    return _LLAMA if model.gated else _BLOOM


def _linear(
    name: str, rows: int, columns: int, bias: bool, part: str, *, rowwise: bool = False, split: bool = True,
    routed: bool = False, keys: int = 0,
) -> Iterator[Tensor]:  # fmt: skip
    """A projection and its bias; a row-parallel one (`rowwise`) keeps its bias whole."""
    yield Tensor(f"{name}.weight", (rows, columns), part, split, routed, keys, rowwise)
    if bias:
        yield Tensor(f"{name}.bias", (rows,), part, split and not rowwise, routed, keys)


def _norm(name: str, width: int, model: Transformer, part: str) -> Iterator[Tensor]:
    if model.norm != "none":
        yield Tensor(f"{name}.weight", (width,), part)
    if model.norm == "layernorm":
        yield Tensor(f"{name}.bias", (width,), part)


def _attention(model: Transformer, part: str, shape: AttentionShape) -> Iterator[Tensor]:
    names, h, heads, d = _names(model), model.hidden, shape.heads, shape.head_dim
    kv, values = shape.kv_heads, shape.value_head_dim
    bias, where = model.attention_bias, names.attention
    if model.latent:
        if model.query_latent:
            yield from _linear(f"{where}q_a_proj", model.query_latent, h, bias, part, split=False)
            yield from _norm(f"{where}q_a_layernorm", model.query_latent, model, part)
            yield from _linear(f"{where}q_b_proj", heads * d, model.query_latent, False, part)
        else:
            yield from _linear(f"{where}q_proj", heads * d, h, False, part)
        compressed = model.kv_latent + model.rope_head_dim
        yield from _linear(f"{where}kv_a_proj_with_mqa", compressed, h, bias, part, split=False)
        yield from _norm(f"{where}kv_a_layernorm", model.kv_latent, model, part)
        expanded = heads * (d - model.rope_head_dim + values)
        yield from _linear(f"{where}kv_b_proj", expanded, model.kv_latent, False, part)
    elif model.gated:
        yield from _linear(f"{where}q_proj", heads * d, h, bias, part)
        for name, rows in (("k_proj", kv * d * shape.keys), ("v_proj", kv * values * shape.values)):
            if rows:
                yield from _linear(f"{where}{name}", rows, h, bias, part, keys=rows)
    else:
        keys = kv * d * shape.keys + kv * values * shape.values
        yield from _linear(f"{where}query_key_value", heads * d + keys, h, bias, part, keys=keys)
    yield from _linear(f"{where}{names.projection}", h, heads * values, model.output_bias, part, rowwise=True)
    if model.qk_norm != "none":
        full = model.qk_norm == "full"
        yield from _norm(f"{where}q_norm", heads * d if full else d, model, part)
        if shape.keys:
            yield from _norm(f"{where}k_norm", kv * d if full else d, model, part)
    if model.gated_attention:
        yield from _linear(f"{where}gate_proj", heads * values, h, False, part)
    if model.index_heads:
        index = model.index_head_dim
        yield from _linear(f"{where}indexer.wq_b", model.index_heads * index, model.query_latent, False, part, split=False)
        yield from _linear(f"{where}indexer.wk", index, h, False, part, split=False)
        yield Tensor(f"{where}indexer.k_norm.weight", (index,), part)
        yield Tensor(f"{where}indexer.k_norm.bias", (index,), part)
        yield from _linear(f"{where}indexer.weights_proj", model.index_heads, h, False, part, split=False)
    if model.attention_sinks:
        yield Tensor(f"{where}sinks", (heads,), part, split=True)


def _state(model: Transformer, part: str) -> Iterator[Tensor]:
    """Tensors of a layer with a state, by what its row says of them; the vectors of its heads and channels in one."""
    state, h, where = model.numbers().recurrent, model.hidden, "mixer."
    for name, rows in (("in_proj", state.inputs), ("low_rank", state.whole)):
        if rows:
            yield from _linear(f"{where}{name}", int(rows), h, False, part, split=name == "in_proj")
    for name, elements in (("inner", state.inner), ("conv1d", state.convolved), ("heads", state.vectors)):
        if elements:
            yield Tensor(f"{where}{name}.weight", (int(elements),), part, split=True)
    if state.whole_vectors:
        yield Tensor(f"{where}norm.weight", (int(state.whole_vectors),), part)
    yield from _linear(f"{where}out_proj", h, int(state.outputs), False, part, rowwise=True)


def _mlp(model: Transformer, prefix: str, width: int, part: str, routed: bool = False) -> Iterator[Tensor]:
    names, bias = _names(model), model.feed_forward_bias
    for name in names.inputs:
        yield from _linear(f"{prefix}{name}", width, model.hidden, bias, part, routed=routed)
    yield from _linear(f"{prefix}{names.output}", model.hidden, width, bias, part, rowwise=True, routed=routed)


def _layer_norms(model: Transformer, part: str) -> list[list[Tensor]]:
    known = _names(model).norms
    titles = [known[i] if i < len(known) else f"norm_{i}" for i in range(model.norms_per_layer)]
    return [list(_norm(title, model.hidden, model, part)) for title in titles]


def _layer(
    model: Transformer, experts: bool, part: str = "layer", mixer: str = "attention", mlp: bool = True,
    shape: AttentionShape | None = None,
) -> Iterator[Tensor]:  # fmt: skip
    """Tensors of one layer, named within it; BLOOM registers norms where they work, Llama after the projections."""
    names, norms = _names(model), _layer_norms(model, part)
    shape = shape or model.attention_of(model.attention_layers - 1)
    attention = list(_attention(model, part, shape)) if mixer in ("attention", "both", "cross") else []
    if mixer == "cross":
        apart = [one._replace(name=one.name.replace(names.attention, "cross_attn.", 1)) for one in attention]
        attention += (*apart, *_norm("cross_attn_layernorm", model.hidden, model, part))
    if model.modulation:
        attention += _linear("modulation", model.modulation * model.hidden, model.hidden, True, part, split=False)
    if model.stream_matrices:
        attention += _linear("other_stream", model.stream_matrices * model.hidden, model.hidden, True, part)
    attention += _state(model, part) if mixer in ("state", "both") else ()
    feed_forward: list[Tensor] = []
    if experts:
        feed_forward += [Tensor(f"{names.mlp}gate.weight", (model.experts, model.hidden), part)]
        for expert in range(model.experts):
            feed_forward += _mlp(model, f"{names.mlp}experts.{expert}.", model.expert_feed_forward, part, routed=True)
        if model.shared_expert_feed_forward:
            feed_forward += _mlp(model, f"{names.mlp}shared_experts.", model.shared_expert_feed_forward, part)
        if model.shared_expert_gate:
            feed_forward += [Tensor(f"{names.mlp}shared_expert_gate.weight", (1, model.hidden), part)]
    elif mlp:
        feed_forward += _mlp(model, names.mlp, shape.feed_forward, part)
        feed_forward += _own_embedding(model, part)
    if model.gated:
        yield from (*attention, *feed_forward, *(tensor for norm in norms for tensor in norm))
    else:
        first, *others = norms
        yield from (*first, *attention, *(tensor for norm in others for tensor in norm), *feed_forward)


def _own_embedding(model: Transformer, part: str) -> Iterator[Tensor]:
    """What a layer does with its own embedding of tokens: a gate, a projection, a norm."""
    if model.layer_embedding:
        yield from _linear("per_layer_input_gate", model.layer_embedding, model.hidden, False, part)
        yield from _linear("per_layer_projection", model.hidden, model.layer_embedding, False, part, rowwise=True)
        yield from _norm("post_per_layer_input_norm", model.hidden, model, part)


Kind = tuple[bool, str, bool, "AttentionShape | None"]


@functools.lru_cache(maxsize=64)
def layer_tensors(
    model: Transformer, experts: bool, mixer: str = "attention", mlp: bool = True, shape: AttentionShape | None = None
) -> tuple[Tensor, ...]:
    """Tensors of one layer in the order of registration, named within the layer.

    Parameters
    ----------
    model : what is trained
    experts : a layer with routed experts, or one with a dense MLP
    mixer : what stands before it, ``"attention"``, ``"cross"``, ``"state"``, ``"both"`` or ``""``
    mlp : whether a layer without experts has a dense MLP
    shape : of its attention, the last layer's if not given
    """
    return tuple(_layer(model, experts, mixer=mixer, mlp=mlp, shape=shape))


@functools.lru_cache(maxsize=64)
def embedding_tensors(model: Transformer) -> tuple[Tensor, ...]:
    """Tensors before the first layer."""
    names = _names(model)
    width = model.embedding_width or model.hidden
    rows, columns = (model.hidden, model.patch_values) if model.patch_values else (model.vocabulary, width)
    found = [Tensor(f"{names.embedding}.weight", (rows, columns), "embedding", split=True)]
    if model.embedding_width:
        found += _linear("project_in", model.hidden, width, False, "embedding", split=False)
    if model.layer_embedding:
        channels = model.layers * model.layer_embedding
        found += [Tensor(f"{names.embedding}_per_layer.weight", (model.vocabulary, channels), "embedding", split=True)]
        found += _linear("per_layer_model_projection", channels, model.hidden, False, "embedding")
    if model.learned_positions:
        found += [Tensor(f"{names.positions}.weight", (model.learned_positions, model.hidden), "embedding")]
    if model.embedding_norm:
        found += _norm(names.embedding_norm, model.hidden, model, "embedding")
    return tuple(found)


@functools.lru_cache(maxsize=64)
def head_tensors(model: Transformer, copy: bool = False) -> tuple[Tensor, ...]:
    """Tensors after the last layer: the last norm, and the output projection where it is the rank's own.

    Parameters
    ----------
    model : what is trained
    copy : a last pipeline stage, which holds its own copy of tied embeddings
    """
    names = _names(model)
    width = model.embedding_width or model.hidden
    found = list(_norm(names.last_norm, model.hidden, model, "head")) if model.last_norm else []
    if model.head_transform:
        found += [*_linear("transform.dense", model.hidden, model.hidden, True, "head", split=False)]
        found += _norm("transform.norm", model.hidden, model, "head")
    if model.embedding_width:
        found += _linear("project_out", width, model.hidden, False, "head", split=False)
    if copy or not model.tied:
        found += [Tensor(f"{names.head}.weight", (model.outputs, width), "head", split=True)]
    if model.head_bias:
        found += [Tensor(f"{names.head}.bias", (model.outputs,), "head", split=True)]
    return tuple(found)


@functools.lru_cache(maxsize=64)
def prediction_tensors(model: Transformer) -> tuple[Tensor, ...]:
    """Tensors of one multi-token-prediction module: three norms, a projection of two hidden states, one layer."""
    part, h = "prediction", model.hidden
    found = [tensor for name in ("enorm", "hnorm") for tensor in _norm(name, h, model, part)]
    found += _linear("eh_proj", h, 2 * h, False, part)
    found += _layer(model, model.expert_layers > 0, part)
    return (*found, *_norm("shared_head.norm", h, model, part))


def _kind(model: Transformer, layer: int) -> Kind:
    """Of which kind a layer is, as `layer_tensors` takes it."""
    shape = None if len(model.attention_shapes) == 1 else model.attention_of(layer)
    return model.has_experts(layer), model.mixer_of(layer), model.has_mlp(layer), shape


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalTensors:
    """The tensors of one rank as columns, in the order of registration."""

    numel: Integers  # elements on this rank
    rows: Integers  # of them, along the first dimension
    layer: Integers  # position in the stage: 0 the embedding, then the layers from 1, then the head
    routed: NDArray[np.bool_]  # belongs to a routed expert
    shared: NDArray[np.bool_]  # an embedding that the first and the last pipeline stage hold both
    layers: int  # of the stage

    def __len__(self) -> int:
        return len(self.numel)

    def where(self, kept: NDArray[np.bool_]) -> LocalTensors:
        """The tensors that `kept` marks."""
        return LocalTensors(
            numel=self.numel[kept], rows=self.rows[kept], layer=self.layer[kept], routed=self.routed[kept],
            shared=self.shared[kept], layers=self.layers,
        )  # fmt: skip


@functools.lru_cache(maxsize=256)
def _columns(
    model: Transformer, what: str | Kind, tensor: int, expert: int, expert_tensor: int
) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """Elements, rows and kind of the tensors of one part on one rank; of the routed experts only its share."""
    made: dict[str, Callable[[Transformer], tuple[Tensor, ...]]] = {
        "embedding": embedding_tensors,
        "head": head_tensors,
        "copy": lambda model: head_tensors(model, True),
        "prediction": prediction_tensors,
    }
    tensors = made[what](model) if isinstance(what, str) else layer_tensors(model, *what)
    kept, seen = [], 0
    matrices = sum(tensor.routed for tensor in tensors) // max(model.experts, 1)
    for one in tensors:
        if one.routed:
            seen += 1
            if seen > matrices * (model.experts // expert):
                continue
        kept.append(one)
    kv_heads = what[3].kv_heads if not isinstance(what, str) and what[3] else int(model.kv_heads or 1)
    local = [one.local(expert_tensor if one.routed else tensor, kv_heads) for one in kept]
    numel = np.array([math.ceil(rows * width) for rows, width in local], dtype=np.int64)
    routed = np.array([one.routed for one in kept], dtype=bool)
    return numel, np.ceil(np.array([rows for rows, _ in local])).astype(np.int64), routed


def stage_tensors(
    model: Transformer, *, layers: Sequence[int], embedding: bool, head: bool, tensor: int, expert: int, expert_tensor: int
) -> LocalTensors:
    """The tensors that one rank of a pipeline stage holds, unsharded by data parallelism.

    Parameters
    ----------
    model : what is trained
    layers : numbers of the stage's layers in the model, in their order
    embedding, head : what else the stage holds; a stage with a head but no embedding has its own copy of tied ones
    tensor, expert, expert_tensor : degrees that split tensors, and experts
    """
    parts: list[tuple[str | Kind, int]] = [("embedding", 0)] * embedding
    parts += [(_kind(model, number), 1 + i) for i, number in enumerate(layers)]
    outer = len(layers) + 1
    if head:
        parts += [("head" if embedding else "copy", outer)] + [("prediction", outer)] * model.prediction_layers
    found = [_columns(model, what, tensor, expert, expert_tensor) for what, _ in parts]
    found = found or [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, bool))]  # a rank for which no layer was left
    sizes = [len(numel) for numel, _, _ in found]
    numel, rows, routed = (np.concatenate(columns) for columns in zip(*found, strict=True))
    shared = np.zeros(len(numel), dtype=bool)
    if model.tied and embedding != head:
        shared[0 if embedding else sum(sizes[:outer]) - 1] = True
    layer = np.repeat(np.array([place for _, place in parts] or [0], dtype=np.int64), sizes)
    return LocalTensors(numel=numel, rows=rows, layer=layer, routed=routed, shared=shared, layers=len(layers))
