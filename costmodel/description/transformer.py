"""The decoder or encoder that is trained: its shape, validated once, and the numbers that formulas take."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

from costmodel.arithmetic.named_tuples import Row, made
from costmodel.description import fields
from costmodel.description.fields import Name, OneOf, Real, Restriction, Whole, expected, row
from costmodel.description.recurrences import RECURRENCES, StateShape
from costmodel.formulas.quantities import (
    AttentionNumbers,
    ExpertNumbers,
    MlpNumbers,
    ModelNumbers,
    RecurrentNumbers,
    VocabularyNumbers,
)
from costmodel.formulas.transformer import flops, parameters
from costmodel.text.attributes import names_what_is_there
from costmodel.text.checks import filled, positive_int, whole
from costmodel.text.errors import InvalidValue
from costmodel.text.results import brief

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX_LAYERS, MAX_WIDTH, MAX_VOCABULARY, MAX_EXPERTS = 10_000, 10_000_000, 100_000_000, 100_000
STATE_FIELDS = (
    "recurrent_layers", "recurrent_heads", "recurrent_key_heads", "recurrent_state", "recurrent_head_dim",
    "attention_beside_state",
)  # fmt: skip
SHAPE_OF_WINDOWS = ("windowed_heads", "windowed_kv_heads", "windowed_head_dim", "windowed_value_head_dim")
UNLIMITED = 1e18
ACTIVATION_KEEPS = {"gelu": 1.0, "gelu-new": 4.0, "relu": 0.0}
"""Tensors that an activation without a gate keeps beside what it makes, where each of its operations is a kernel."""
"""Window of a layer that looks back at everything [tokens]."""
NO_ATTENTION = AttentionNumbers(*[0.0] * len(AttentionNumbers._fields))._replace(met=1.0, met_whole=1.0)


def _spread(layer: int, many: int, layers: int) -> bool:
    """Whether a layer is one of so many that are evenly spread over all."""
    return (layer + 1) * many // layers > layer * many // layers


class AttentionShape(NamedTuple):
    """The attention of one kind of layer."""

    windowed: bool  # whether it looks back through a window
    heads: int  # heads, kv_heads, head_dim, value_head_dim: as `Transformer` has them
    kv_heads: int
    head_dim: int
    value_head_dim: int
    keys: bool  # whether it has keys of its own, and does not attend to those of an earlier layer
    values: bool  # whether it has values of its own, which are neither keys nor those of an earlier layer
    feed_forward: int  # width of the MLP behind it


@names_what_is_there
@fields.by_name("fields by name; load_model('llama3-8b') gives one of a name")
@dataclasses.dataclass(frozen=True, kw_only=True)
class Transformer:
    """A decoder-only transformer, or an encoder.

    Parameters
    ----------
    name : what it is called
    layers, hidden, heads, vocabulary : shape
    feed_forward : width of the dense MLP [channels]; 0 where every layer has experts
    kv_heads : heads of keys and values; `heads` if not given (GQA, MQA below)
    head_dim : channels of a query/key head; ``hidden / heads`` if not given; under latent attention the
        part without position plus `rope_head_dim`
    value_head_dim : channels of a value head; `head_dim` if not given
    gated : SwiGLU-like MLP with two input matrices
    activation : of an MLP that isn't gated: ``"gelu"``, or any that is one kernel and keeps what it reads; ``"gelu-new"``, its
        approximation by a hyperbolic tangent, which Hugging Face's code writes out in eight kernels (GPT-2, GPT-J, Phi);
        ``"relu"``, which keeps what it makes alone (OPT)
    clamped_activation : both of them are held within limits before the activation (gpt-oss)
    norm : ``"rmsnorm"``, ``"layernorm"``, or ``"none"`` for norms without weights (OLMo); a LayerNorm without biases has
        one vector, as an RMSNorm
    wide_norm : an RMSNorm multiplies by its weight in 32 bit, where it is several kernels (Gemma)
    norms_per_layer : norms of hidden width in one layer
    qk_norm : norm of queries and keys: ``"none"``, ``"head"`` (one shared vector of head_dim for queries, one
        for keys), ``"full"`` (a vector over all heads)
    tied_embeddings : the output projection is the input embedding
    learned_positions : rows of a learned position table; no longer sequence can be trained
    trained_length : of the sequences that it was trained with or extended to [tokens]; 0 where that isn't known
    capped_logits : logits are held within limits by a hyperbolic tangent, which keeps what it makes (Gemma 2)
    embedding_norm : a norm after the embedding (BLOOM)
    attention_bias, output_bias, feed_forward_bias : biases of q/k/v, of the attention output, of the MLP
    attention_sinks : one learned sink logit per head (gpt-oss)
    parallel_block : attention and MLP read the same input (GPT-J, Falcon)
    fused_projections : in Hugging Face's code one product makes queries, keys and values (GPT-NeoX, Falcon, Phi-3)
    split_rotation : in its code queries and keys are put together of rotated channels and others (GPT-NeoX, Phi, Phi-3)
    repeated_keys : in its code keys and values that several queries share are copied for each of them (ChatGLM2, 3, GLM-4-9B)
    experts, experts_per_token, expert_feed_forward : routed experts, and the width of one
    shared_expert_feed_forward : width of all shared experts together
    dense_layers : layers that keep a dense MLP in a mixture-of-experts model: the first ones, unless the next two say otherwise
    first_expert_layer : the first layer with experts, from 0; `dense_layers`, or the last of the first `expert_layer_step`, if
        not given
    expert_layer_step : from there on one of so many layers has experts: 1 each, until `dense_layers` are left; 2 every other
        one, as in Llama 4 Maverick; 0 where no rule says which, so that they are spread evenly
    expert_capacity : tokens an expert takes over the mean: the rest is dropped, fewer are padded; None: dropless
    expert_imbalance : tokens on the busiest expert rank over the mean, where dropless
    query_latent, kv_latent, rope_head_dim : latent attention (kv_latent > 0 turns it on)
    expert_groups, groups_per_token : a token's experts are taken from so many of the groups into which they are put, as
        DeepSeek's node-limited routing does
    shared_expert_gate : a gate of one output on the shared experts (Qwen2-MoE)
    sliding_window, windowed_layers : tokens a windowed layer looks back; how many layers are windowed
    windowed_heads, windowed_kv_heads, windowed_head_dim, windowed_value_head_dim : of the windowed layers, where they differ
        from those of the others (Gemma 4, MiMo-V2, Step 3.5); 0: as there
    values_are_keys : layers without a window project no values: what they weigh are the keys (Gemma 4)
    kv_sharing_layers : the last layers, which attend to the keys and values of an earlier one (Gemma 4 E2B and E4B)
    sharing_feed_forward : width of the MLP in these layers; 0: as elsewhere
    layer_embedding : channels of an embedding of the tokens that every layer has of its own (Gemma 4 E2B and E4B)
    index_heads, index_head_dim : of the indexer that picks the keys of sparse attention (DeepSeek-V3.2), whose number is
        the `sliding_window`
    gated_attention : a gate, projected as queries are, on what heads give (Qwen3-Next)
    recurrence : what some layers have in place of attention, a state: ``"gated-delta-net"`` (Qwen3-Next, Qwen3.5),
        ``"kimi-delta"``, ``"channel-delta"`` (Ling's hybrids), ``"mamba2"`` (Nemotron-H, Granite 4), ``"mamba"`` (Jamba),
        ``"lightning"`` (MiniMax-01), ``"short-convolution"`` (LFM2); ``"none"``
    recurrent_layers : layers that have one, evenly spread
    attention_beside_state : layers with a state attend, too, side by side (Falcon-H1)
    recurrent_heads, recurrent_key_heads : with a state each; that have keys and queries (groups of B and C); the former, if 0
    recurrent_state, recurrent_head_dim : rows and columns of a head's state: channels of a key, of a value
    recurrent_rank : of the projection of steps (Mamba)
    recurrent_chunk : of the scan [tokens]
    convolution_taps : of the short convolution before a state; 0 without
    mlp_layers : layers with an MLP or experts; where not all, each layer is an MLP or what stands before one (Nemotron-H)
    encoder_layers : of `layers`, the first, which make an encoder; the others have cross-attention to it, too (T5, Whisper)
    cross_attention_layers : layers, evenly spread, that attend to an image's tokens in place of the sequence's (Llama 3.2 vision)
    source_tokens : of the encoder, or of the images that layers attend to, for each token of the sequence, which is the decoder's
    modulation : matrices that make a layer's scales and shifts of a condition, once a sequence (DiT: 6)
    stream_matrices : matrices of hidden width on either side, of an average layer, that tokens of another stream meet in place of
        the layer's own (FLUX.1: 4, as a third of its layers have all of theirs twice, for images and for texts)
    prediction_layers : multi-token-prediction modules trained beside the model
    dropout : dropout in attention and after each block (its masks are saved)
    causal : a token meets those before it (decoders), or every other (encoders)
    embedding_width : channels of the embedding where a projection widens it to `hidden` (OPT-350m); 0: `hidden`
    patch_values : numbers of an image patch, which a projection takes in place of an embedding (ViT); 0: tokens
    last_norm : a norm after the last layer
    head_outputs : of an output projection that is no vocabulary's, so not tied: 2 of the ends of an answer, classes; 0: the
        vocabulary's
    head_bias : a bias of the output projection
    head_transform : a dense layer and a norm before the output projection (masked language models)
    published_parameters : the count its authors state, where the catalogue quotes one

    Raises
    ------
    InvalidValue
        naming the field, its value and what was expected

    Examples
    --------
    >>> small = Transformer(name="gpt2-small", layers=12, hidden=768, heads=12, vocabulary=50257,
    ...     feed_forward=3072, gated=False, norm="layernorm", tied_embeddings=True, learned_positions=1024,
    ...     attention_bias=True, output_bias=True, feed_forward_bias=True)
    >>> small.parameters
    124439808
    """

    name: str = field(metadata=row(Name()))
    layers: int = field(metadata=row(Whole(1, MAX_LAYERS)))
    hidden: int = field(metadata=row(Whole(1, MAX_WIDTH), unit="channels"))
    heads: int = field(metadata=row(Whole(1, MAX_WIDTH)))
    vocabulary: int = field(metadata=row(Whole(1, MAX_VOCABULARY), unit="tokens"))
    feed_forward: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY), unit="channels"))
    kv_heads: int | None = field(default=None, metadata=row(Whole(1, MAX_WIDTH)))
    head_dim: int | None = field(default=None, metadata=row(Whole(1, MAX_WIDTH), unit="channels"))
    value_head_dim: int | None = field(default=None, metadata=row(Whole(1, MAX_WIDTH), unit="channels"))
    gated: bool = True
    activation: Literal["gelu", "gelu-new", "relu"] = field(default="gelu", metadata=row(OneOf(tuple(ACTIVATION_KEEPS))))
    clamped_activation: bool = False
    norm: Literal["rmsnorm", "layernorm", "none"] = field(
        default="rmsnorm", metadata=row(OneOf(("rmsnorm", "layernorm", "none")))
    )  # fmt: skip
    wide_norm: bool = False
    norms_per_layer: int = field(default=2, metadata=row(Whole(1, 16)))
    qk_norm: Literal["none", "head", "full"] = field(default="none", metadata=row(OneOf(("none", "head", "full"))))
    tied_embeddings: bool = False
    learned_positions: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY), unit="tokens"))
    capped_logits: bool = False
    embedding_norm: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    feed_forward_bias: bool = False
    attention_sinks: bool = False
    parallel_block: bool = False
    fused_projections: bool = False
    split_rotation: bool = False
    repeated_keys: bool = False
    experts: int = field(default=0, metadata=row(Whole(0, MAX_EXPERTS)))
    experts_per_token: int = field(default=0, metadata=row(Whole(0, MAX_EXPERTS)))
    expert_feed_forward: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY), unit="channels"))
    shared_expert_feed_forward: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY), unit="channels"))
    expert_groups: int = field(default=1, metadata=row(Whole(1, MAX_EXPERTS)))
    groups_per_token: int = field(default=1, metadata=row(Whole(1, MAX_EXPERTS)))
    shared_expert_gate: bool = False
    dense_layers: int = field(default=0, metadata=row(Whole(0, MAX_LAYERS), unit="layers"))
    first_expert_layer: int | None = field(default=None, metadata=row(Whole(0, MAX_LAYERS)))
    expert_layer_step: int = field(default=1, metadata=row(Whole(0, MAX_LAYERS), unit="layers"))
    expert_capacity: float | None = field(default=None, metadata=row(Real(1e-3, 1e5)))
    expert_imbalance: float = field(default=1.0, metadata=row(Real(1.0, 1e5)))
    query_latent: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY), unit="channels"))
    kv_latent: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY), unit="channels"))
    rope_head_dim: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY), unit="channels"))
    sliding_window: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY), unit="tokens"))
    windowed_layers: int = field(default=0, metadata=row(Whole(0, MAX_LAYERS), unit="layers"))
    windowed_heads: int = field(default=0, metadata=row(Whole(0, MAX_WIDTH)))
    windowed_kv_heads: int = field(default=0, metadata=row(Whole(0, MAX_WIDTH)))
    windowed_head_dim: int = field(default=0, metadata=row(Whole(0, MAX_WIDTH), unit="channels"))
    windowed_value_head_dim: int = field(default=0, metadata=row(Whole(0, MAX_WIDTH), unit="channels"))
    values_are_keys: bool = False
    kv_sharing_layers: int = field(default=0, metadata=row(Whole(0, MAX_LAYERS), unit="layers"))
    sharing_feed_forward: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY), unit="channels"))
    layer_embedding: int = field(default=0, metadata=row(Whole(0, MAX_WIDTH), unit="channels"))
    index_heads: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY)))
    index_head_dim: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY), unit="channels"))
    gated_attention: bool = False
    recurrence: str = field(default="none", metadata=row(OneOf(tuple(RECURRENCES))))
    recurrent_layers: int = field(default=0, metadata=row(Whole(0, MAX_LAYERS), unit="layers"))
    attention_beside_state: bool = False
    recurrent_heads: int = field(default=0, metadata=row(Whole(0, MAX_WIDTH)))
    recurrent_key_heads: int = field(default=0, metadata=row(Whole(0, MAX_WIDTH)))
    recurrent_state: int = field(default=0, metadata=row(Whole(0, MAX_WIDTH), unit="channels"))
    recurrent_head_dim: int = field(default=0, metadata=row(Whole(0, MAX_WIDTH), unit="channels"))
    recurrent_rank: int = field(default=0, metadata=row(Whole(0, MAX_WIDTH), unit="channels"))
    recurrent_chunk: int = field(default=64, metadata=row(Whole(1, MAX_WIDTH), unit="tokens"))
    convolution_taps: int = field(default=0, metadata=row(Whole(0, 1000), unit="tokens"))
    mlp_layers: int | None = field(default=None, metadata=row(Whole(0, MAX_LAYERS), unit="layers"))
    encoder_layers: int = field(default=0, metadata=row(Whole(0, MAX_LAYERS), unit="layers"))
    cross_attention_layers: int = field(default=0, metadata=row(Whole(0, MAX_LAYERS), unit="layers"))
    source_tokens: float = field(default=1.0, metadata=row(Real(1e-4, 1e4)))
    modulation: int = field(default=0, metadata=row(Whole(0, 64)))
    stream_matrices: int = field(default=0, metadata=row(Whole(0, 64)))
    prediction_layers: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY), unit="layers"))
    dropout: bool = False
    causal: bool = True
    embedding_width: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY), unit="channels"))
    patch_values: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY)))
    last_norm: bool = True
    head_outputs: int = field(default=0, metadata=row(Whole(0, MAX_VOCABULARY)))
    head_bias: bool = False
    head_transform: bool = False
    trained_length: int = dataclasses.field(default=0, compare=False)
    published_parameters: float | None = None

    __repr__ = brief

    def __post_init__(self) -> None:
        fields.check(self)
        if self.kv_heads is None:
            object.__setattr__(self, "kv_heads", self.heads)
        if self.heads % filled(self.kv_heads):
            raise InvalidValue("kv_heads", self.kv_heads, f"a divisor of heads={self.heads}")
        if self.head_dim is None:
            if self.hidden % self.heads:
                raise InvalidValue("heads", self.heads, f"a divisor of hidden={self.hidden}, or head_dim given")
            object.__setattr__(self, "head_dim", self.hidden // self.heads)
        if self.value_head_dim is None:
            object.__setattr__(self, "value_head_dim", self.head_dim)
        for name in ("windowed_layers", "dense_layers"):
            whole(name, getattr(self, name), self.layers)
        if self.windowed_layers and not self.sliding_window:
            raise InvalidValue("sliding_window", self.sliding_window, "the window of the windowed layers [tokens]")
        self._check_recurrence()
        self._check_encoder()
        self._check_experts()
        self._check_shapes()
        if self.latent:
            if self.rope_head_dim >= filled(self.head_dim):
                raise InvalidValue("rope_head_dim", self.rope_head_dim, f"less than head_dim={self.head_dim}")
        elif self.query_latent or self.rope_head_dim:
            raise InvalidValue("kv_latent", self.kv_latent, "more than 0 where query_latent or rope_head_dim is given")
        if self.index_heads and not self.query_latent:
            raise InvalidValue("index_heads", self.index_heads, "0 without query_latent: an indexer reads it")

    def _check_shapes(self) -> None:
        """Layers of several shapes: those of windowed layers, and of layers without keys of their own."""
        for name in SHAPE_OF_WINDOWS:
            if getattr(self, name) and not self.windowed_layers:
                raise InvalidValue(name, getattr(self, name), "0 without windowed layers")
        for one in self.attention_shapes:
            if one.heads % one.kv_heads:
                raise InvalidValue("windowed_kv_heads", one.kv_heads, f"a divisor of the windowed layers' {one.heads} heads")
        if self.kv_sharing_layers and (self.recurrent_layers or self.mlp_layers is not None or self.latent):
            raise InvalidValue("kv_sharing_layers", self.kv_sharing_layers, "0 beside states, latents or layers of one block")
        if self.kv_sharing_layers >= self.layers:
            raise InvalidValue("kv_sharing_layers", self.kv_sharing_layers, f"less than layers={self.layers}")
        if self.sharing_feed_forward and not self.kv_sharing_layers:
            raise InvalidValue("sharing_feed_forward", self.sharing_feed_forward, "0 without kv_sharing_layers")
        if self.latent and (self.values_are_keys or any(getattr(self, name) for name in SHAPE_OF_WINDOWS)):
            raise InvalidValue("kv_latent", self.kv_latent, "0 where layers have heads of several shapes")
        if self.layer_embedding and not self.feed_forward:
            raise InvalidValue("layer_embedding", self.layer_embedding, "0 without dense MLPs")

    def _check_encoder(self) -> None:
        """A decoder behind an encoder, or with layers that attend to images, is a plain one."""
        behind = "encoder_layers" if self.encoder_layers else "cross_attention_layers"
        if not self.encoder_layers and not self.cross_attention_layers:
            if self.source_tokens != 1.0:
                raise InvalidValue("source_tokens", self.source_tokens, "1 without encoder_layers or cross_attention_layers")
            return
        whole(behind, getattr(self, behind), self.layers - 1)
        others = ("recurrent_layers", "windowed_layers", "kv_latent", "experts", "prediction_layers", "kv_sharing_layers")
        for name in (*others, *(("cross_attention_layers",) if self.encoder_layers else ())):
            if getattr(self, name):
                raise InvalidValue(name, getattr(self, name), f"0 with {behind}: a decoder with another source is a plain one")
        if not self.causal or self.mlp_layers is not None or self.parallel_block:
            raise InvalidValue(behind, getattr(self, behind), "0 but with causal layers of attention and an MLP in turn")

    def _check_recurrence(self) -> None:
        """States are whole where there are any, and layers are of one block each or of two."""
        if self.mlp_layers is not None:
            whole("mlp_layers", self.mlp_layers, self.layers)
            if self.experts and self.dense_layers:
                raise InvalidValue("dense_layers", self.dense_layers, "0 where mlp_layers says which layers have experts")
            if self.experts and self.expert_layer_step:
                raise InvalidValue("expert_layer_step", self.expert_layer_step, "0 where mlp_layers says which have experts")
        if self.recurrence == "none":
            for name in STATE_FIELDS:
                if getattr(self, name):
                    raise InvalidValue(name, getattr(self, name), "0 where recurrence is 'none'")
            return
        for name in ("recurrent_heads", "recurrent_state", "recurrent_head_dim"):
            positive_int(name, getattr(self, name), MAX_WIDTH)
        positive_int("recurrent_layers", self.recurrent_layers, self.layers - (self.mlp_layers or 0))
        if self.attention_beside_state and (self.recurrent_layers < self.layers or self.mlp_layers is not None):
            raise InvalidValue("attention_beside_state", True, "false but where every layer has a state and an MLP")
        if self.recurrent_heads % (self.recurrent_key_heads or self.recurrent_heads):
            raise InvalidValue("recurrent_key_heads", self.recurrent_key_heads, f"a divisor of {self.recurrent_heads} heads")
        if self.recurrence == "mamba":
            positive_int("recurrent_rank", self.recurrent_rank, MAX_WIDTH)

    def _check_experts(self) -> None:
        if self.experts:
            positive_int("experts_per_token", self.experts_per_token, self.experts)
            positive_int("expert_feed_forward", self.expert_feed_forward, MAX_WIDTH)
            positive_int("expert_groups", self.expert_groups, self.experts)
            positive_int("groups_per_token", self.groups_per_token, self.expert_groups)
            self._check_layout()
            if self.dense_layers and not self.feed_forward:
                raise InvalidValue("feed_forward", self.feed_forward, "the width of the dense layers' MLP")
        else:
            positive_int("feed_forward", self.feed_forward, MAX_WIDTH)
            for name in ("experts_per_token", "expert_feed_forward", "shared_expert_feed_forward", "dense_layers"):
                if getattr(self, name):
                    raise InvalidValue(name, getattr(self, name), "0 in a model without experts")
            if self.first_expert_layer is not None:
                raise InvalidValue("first_expert_layer", self.first_expert_layer, "None in a model without experts")
            if whole("expert_layer_step", self.expert_layer_step, 1) != 1:
                raise InvalidValue("expert_layer_step", self.expert_layer_step, "1 in a model without experts")

    def _check_layout(self) -> None:
        """Which layers have experts; where every so many have them, the others are counted."""
        step = self.expert_layer_step
        if self.first_expert_layer is not None:
            whole("first_expert_layer", self.first_expert_layer, self.layers if step == 1 else self.layers - 1)
        if step == 0 and self.first_expert_layer is not None:
            raise InvalidValue("first_expert_layer", self.first_expert_layer, "None where expert_layer_step is 0: by no rule")
        if step == 1 and self.expert_start > self.dense_layers:
            raise InvalidValue("first_expert_layer", self.first_expert_layer, f"at most dense_layers={self.dense_layers}")
        if step > 1:
            if step > self.layers and self.first_expert_layer is None:
                raise InvalidValue("expert_layer_step", step, f"at most layers={self.layers}")
            dense = self.blocks_with_mlp - len(range(self.expert_start, self.layers, step))
            if self.dense_layers not in (0, dense):
                raise InvalidValue("dense_layers", self.dense_layers, f"{dense}, by first_expert_layer and expert_layer_step")
            object.__setattr__(self, "dense_layers", dense)

    @classmethod
    def from_huggingface(cls, path: str | Path, name: str | None = None) -> Transformer:
        """Read a local Hugging Face ``config.json`` (or the folder that holds one).

        Parameters
        ----------
        path : file or folder; at most 64 MiB are read
        name : what to call the model; the file's own name for it if not given

        Raises
        ------
        UnreadableFile
            where the file is missing, too large or not JSON
        NotModelled
            where the architecture is unknown, or a key that changes the shape is

        Notes
        -----
        `costmodel.description.huggingface.read` also gives what was left out: towers for images, unknown keys.
        """
        from pathlib import Path

        read = import_module("costmodel.description.huggingface").read_config  # which knows models, not the reverse
        return made(cls, read(Path(path), name))

    @property
    def latent(self) -> bool:
        """Whether attention is multi-head latent attention."""
        return self.kv_latent > 0

    @property
    def expert_layers(self) -> int:
        """Layers with a mixture of experts."""
        return self.blocks_with_mlp - self.dense_layers if self.experts else 0

    @property
    def blocks_with_mlp(self) -> int:
        """Layers with an MLP or a mixture of experts."""
        return self.layers if self.mlp_layers is None else self.mlp_layers

    @property
    def attention_layers(self) -> int:
        """Layers with attention: those without a state, and where layers are of one block each, without an MLP."""
        return self.layers - (self.mlp_layers or 0) - (0 if self.attention_beside_state else self.recurrent_layers)

    @property
    def cross_layers(self) -> int:
        """Layers with cross-attention to an encoder."""
        return self.layers - self.encoder_layers if self.encoder_layers else 0

    @property
    def layer_tokens(self) -> float:
        """Tokens that an average layer works through, over those of a sequence: those of the encoder are others."""
        return (self.encoder_layers * self.source_tokens + self.layers - self.encoder_layers) / self.layers

    def _met(self) -> dict[str, float]:
        """Keys that a query of an average attention meets, over those that all would in a decoder alone."""
        ratio, behind, elsewhere = self.source_tokens, self.cross_layers, self.cross_attention_layers / self.layers
        if elsewhere:
            return {"met": 1.0 - elsewhere + 2.0 * elsewhere * ratio, "met_whole": 1.0 - elsewhere + elsewhere * ratio}
        if not self.encoder_layers:
            return {}
        queries = (self.layers + behind) * self.layer_tokens
        encoded = self.encoder_layers * ratio**2
        below, every = encoded + behind * (0.5 + ratio), encoded + behind * (1.0 + ratio)
        return {"met": 2.0 * below / queries, "met_whole": every / queries}

    @property
    def state_share(self) -> float:
        """Share of the layers that keep a state in place of attention."""
        return self.recurrent_layers / self.layers

    def _state(self) -> RecurrentNumbers:
        """What layers with a state are, in numbers."""
        shape = StateShape(
            heads=float(self.recurrent_heads), key_heads=float(self.recurrent_key_heads or self.recurrent_heads),
            rows=float(self.recurrent_state), columns=float(self.recurrent_head_dim), taps=float(self.convolution_taps),
            rank=float(self.recurrent_rank), chunk=float(self.recurrent_chunk),
        )  # fmt: skip
        return RECURRENCES[self.recurrence](shape)._replace(share=self.state_share)

    @property
    def outputs(self) -> int:
        """Of the output projection, a token."""
        return self.head_outputs or self.vocabulary

    @property
    def tied(self) -> bool:
        """Whether the output projection is the input embedding, as that of a head of its own isn't."""
        return self.tied_embeddings and not self.head_outputs

    @property
    def expert_start(self) -> int:
        """The first layer with a mixture of experts, from 0, where a rule says which these are."""
        if self.first_expert_layer is not None:
            return self.first_expert_layer
        return self.expert_layer_step - 1 if self.expert_layer_step > 1 else self.dense_layers * self.expert_layer_step

    def has_experts(self, layer: int) -> bool:
        """Whether a layer has a mixture of experts.

        Parameters
        ----------
        layer : from 0

        Examples
        --------
        >>> from costmodel import load_model
        >>> [layer for layer in range(8) if load_model("llama4-maverick").has_experts(layer)]
        [1, 3, 5, 7]
        """
        many, step = self.expert_layers, self.expert_layer_step
        if step == 0:
            return _spread(layer, many, self.layers)
        behind = layer - self.expert_start
        return 0 <= behind < many * step and behind % step == 0

    @property
    def alike(self) -> bool:
        """Whether all layers are of one kind."""
        return self.expert_layers in (0, self.layers) and not self.recurrent_layers and self.mlp_layers is None \
            and not self.encoder_layers

    def has_mlp(self, layer: int) -> bool:
        """Whether a layer has an MLP or experts: all, or evenly spread ones where layers are of one block each.

        Parameters
        ----------
        layer : from 0
        """
        return _spread(layer, self.blocks_with_mlp, self.layers)

    def mixer_of(self, layer: int) -> str:
        """What brings a layer's tokens together: ``"attention"``, ``"cross"``, which is two, ``"state"``, ``"both"``, or ``""``
        where it is an MLP alone.

        Parameters
        ----------
        layer : from 0

        Examples
        --------
        Qwen3-Next has attention in every fourth layer.

        >>> small = Transformer(name="small", layers=4, hidden=64, heads=4, vocabulary=100, feed_forward=64,
        ...     recurrence="gated-delta-net", recurrent_layers=3, recurrent_heads=4, recurrent_state=16, recurrent_head_dim=16)
        >>> [small.mixer_of(layer) for layer in range(4)]
        ['state', 'state', 'state', 'attention']
        """
        if self.attention_beside_state:
            return "both"
        if self.encoder_layers:
            return "attention" if layer < self.encoder_layers else "cross"
        mixers, place = self.layers, layer
        if self.mlp_layers is not None:
            if self.has_mlp(layer):
                return ""
            mixers, place = self.layers - self.mlp_layers, layer - layer * self.mlp_layers // self.layers
        return "attention" if _spread(place, self.attention_layers, mixers) else "state"

    def attention_of(self, layer: int) -> AttentionShape:
        """The shape of a layer's attention; layers without a window are evenly spread, the last of so many first.

        Parameters
        ----------
        layer : from 0, of those that have attention

        Examples
        --------
        >>> small = Transformer(name="small", layers=4, hidden=64, heads=4, head_dim=32, vocabulary=100, feed_forward=64,
        ...     sliding_window=16, windowed_layers=3, windowed_head_dim=16)
        >>> [small.attention_of(layer).head_dim for layer in range(4)]
        [16, 16, 16, 32]
        """
        whole = max(self.attention_layers - self.windowed_layers, 0)
        windowed = not _spread(layer, whole, max(self.attention_layers, 1))
        own = layer < self.layers - self.kv_sharing_layers
        heads, kv_heads, head_dim, value_head_dim = (
            (windowed and getattr(self, f"windowed_{name}")) or filled(getattr(self, name))
            for name in ("heads", "kv_heads", "head_dim", "value_head_dim")
        )
        if windowed and self.windowed_head_dim and not self.windowed_value_head_dim and self.value_head_dim == self.head_dim:
            value_head_dim = head_dim
        return AttentionShape(
            windowed=windowed, heads=heads, kv_heads=kv_heads, head_dim=head_dim, value_head_dim=value_head_dim, keys=own,
            values=own and (windowed or not self.values_are_keys),
            feed_forward=self.feed_forward if own else self.sharing_feed_forward or self.feed_forward,
        )  # fmt: skip

    @property
    def attention_shapes(self) -> dict[AttentionShape, int]:
        """Each shape that layers' attention has, and in how many layers."""
        if not any(getattr(self, name) for name in (*SHAPE_OF_WINDOWS, "values_are_keys", "kv_sharing_layers")):
            return {self.attention_of(self.attention_layers - 1): max(self.attention_layers, 1)}
        return Counter(map(self.attention_of, range(self.attention_layers)))

    @property
    def parameters(self) -> int:
        """Exact parameter count, multi-token-prediction modules left out."""
        return round(parameters.total_parameters(self.numbers()))

    @property
    def active_parameters(self) -> int:
        """Parameters that work on one token."""
        return round(parameters.active_parameters(self.numbers()))

    def parameters_by_part(self) -> dict[str, int]:
        """Parameters of each part: one dense and one expert layer, embedding, head, and the total."""
        numbers = self.numbers()
        parts: Row = {
            "attention_of_a_layer": parameters.attention_parameters(numbers),
            "embedding": parameters.embedding_parameters(numbers),
            "head": parameters.head_parameters(numbers),
            "total": parameters.total_parameters(numbers),
        }
        if self.expert_layers < self.layers:
            parts["dense_layer"] = parameters.dense_layer_parameters(numbers)
        if self.expert_layers:
            shared = parameters.expert_layer_shared_parameters(numbers)
            parts["expert_layer"] = shared + parameters.expert_parameters(numbers)
        return {part: round(count) for part, count in parts.items()}

    def flop_per_token(self, seq_len: int, causal: bool = True) -> float:
        """FLOP of forward and backward per token, nothing recomputed.

        Parameters
        ----------
        seq_len : [tokens]
        causal : count only the attention scores below the diagonal (what flash kernels compute); False
            counts all of them (the convention of Megatron-LM and of most published MFU figures)

        Returns
        -------
        float
            [FLOP]
        """
        positive_int("seq_len", seq_len, 10**8)
        return float(flops.model_flop_per_token(self.numbers(), float(seq_len), float(causal)))

    def _dense_share(self) -> float:
        """Of the layers without experts, those with a dense MLP."""
        others = self.layers - self.expert_layers
        return (self.blocks_with_mlp - self.expert_layers) / others if others else 1.0

    def _mlp_width(self) -> float:
        """Of an average layer's MLP, and of the matrices behind a layer's own embedding: in, out, and from the hidden state."""
        shapes = self.attention_shapes
        mean = sum(one.feed_forward * layers for one, layers in shapes.items()) / sum(shapes.values())
        return (mean if self.kv_sharing_layers else float(self.feed_forward)) + self.layer_embedding * 3.0 / (2.0 + self.gated)

    def _attention(self) -> AttentionNumbers:
        """Of an average layer: as many heads, of the width that most layers have, as make the same matrices and scores."""
        shapes = self.attention_shapes
        layers = sum(shapes.values())

        def mean(of: Callable[[AttentionShape], float]) -> float:
            return sum(of(one) * many for one, many in shapes.items()) / layers

        most = max(shapes, key=lambda one: (shapes[one], one.windowed))
        heads = mean(lambda one: one.heads * one.head_dim) / most.head_dim
        keys = mean(lambda one: one.kv_heads * one.head_dim * one.keys)
        core = mean(lambda one: one.heads * (one.head_dim + one.value_head_dim))
        windowed = mean(lambda one: one.heads * (one.head_dim + one.value_head_dim) * one.windowed) / core
        if len(shapes) == 1:
            windowed = self.windowed_layers / max(self.attention_layers, 1)
        norms: dict[str, Callable[[AttentionShape], float]] = {
            "none": lambda one: 0.0, "head": lambda one: one.head_dim * (1 + one.keys),
            "full": lambda one: (one.heads + one.kv_heads * one.keys) * one.head_dim,
        }  # fmt: skip
        return NO_ATTENTION._replace(
            heads=heads, kv_heads=keys / most.head_dim, head_dim=float(most.head_dim),
            value_head_dim=mean(lambda one: one.heads * one.value_head_dim) / heads,
            value_rows=mean(lambda one: one.kv_heads * one.value_head_dim * one.values) / keys,
            split_heads=float(math.gcd(*(one.heads for one in shapes))), split_kv_heads=float(most.kv_heads),
            windowed_layers=windowed * self.layers, qk_norm_channels=mean(norms[self.qk_norm]),
        )  # fmt: skip

    @property
    def restrictions(self) -> tuple[Restriction, ...]:
        """What it holds the fields of a plan to, whatever the others: a sequence has a position for each of its tokens."""
        most = self.learned_positions
        wish = f"at most {most}: {self.name} has learned positions for no more (replace(model, " \
               "{'learned_positions': {seq_len}}) gives it as many)"  # fmt: skip
        return (Restriction("seq_len", (), expected("seq_len", wish), "seq_len", above=most),) if most else ()

    def numbers(self) -> ModelNumbers:
        """The shape as the numbers that formulas take."""
        return self._numbers

    @functools.cached_property
    def _numbers(self) -> ModelNumbers:
        load = self.expert_imbalance if self.expert_capacity is None else self.expert_capacity

        def same(names: str) -> dict[str, float]:
            return {name: float(getattr(self, name)) for name in names.split()}

        return ModelNumbers(
            attention=self._attention()._replace(
                **same("latent query_latent kv_latent rope_head_dim output_bias causal index_heads index_head_dim split_rotation "
                       "repeated_keys"),
                window=float(self.sliding_window or UNLIMITED), bias=float(self.attention_bias),
                sinks=float(self.attention_sinks), gate=float(self.gated_attention), fused=float(self.fused_projections),
                share=(self.attention_layers + self.cross_layers) / self.layers, **self._met(),
            ),
            recurrent=self._state(),
            mlp=MlpNumbers(
                width=self._mlp_width(), split_width=float(self.feed_forward),
                gated=float(self.gated), bias=float(self.feed_forward_bias),
                activation_keeps=ACTIVATION_KEEPS[self.activation], clamped=float(self.clamped_activation),
                share=self._dense_share(),
            ),
            experts=ExpertNumbers(
                layers=float(self.expert_layers), start=float(self.expert_start if self.experts else 0),
                step=float(self.expert_layer_step), number=float(self.experts), per_token=float(self.experts_per_token),
                width=float(self.expert_feed_forward), shared_width=float(self.shared_expert_feed_forward), load=float(load),
                padded=float(self.expert_capacity is not None), shared_gate=float(self.shared_expert_gate),
                groups=float(self.expert_groups), groups_per_token=float(self.groups_per_token),
            ),
            vocabulary=VocabularyNumbers(
                size=float(self.vocabulary), positions=float(self.learned_positions), norm=float(self.embedding_norm),
                capped=float(self.capped_logits), layer_channels=float(self.layers * self.layer_embedding),
                **same("outputs tied embedding_width patch_values head_bias head_transform"),
            ),
            norm_vectors={"none": 0.0, "rmsnorm": 1.0, "layernorm": 2.0}[self.norm],
            norms=self.norms_per_layer + float(self.layer_embedding > 0) + self.cross_layers / self.layers,
            layer_tokens=self.layer_tokens, **same("layers hidden wide_norm parallel_block prediction_layers dropout last_norm "
                                                   "modulation stream_matrices"),
        )  # fmt: skip
