"""What a layer of a Hugging Face decoder saves for its backward pass, as traced, beside what the library says."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TypeAlias

from costmodel import Plan, Transformer, load_framework
from costmodel.formulas.quantities import ModelNumbers, PlanNumbers, Settings
from costmodel.formulas.transformer import activations, adapters, layer, traffic
from costmodel.traces.memory import living
from costmodel.traces.record import KERNEL, PHASES, Role, Trace
from tests.audits.case import Case, Compared

LAYERS, BATCH, SEQUENCE = 3, 2, 512
TOKENS = BATCH * SEQUENCE
SHAPE = Transformer(
    name="small", layers=LAYERS, hidden=256, heads=8, kv_heads=4, head_dim=32, feed_forward=768, vocabulary=512, gated=True,
    norm="rmsnorm",
)  # fmt: skip
EVERY = ("query", "key", "value", "output", "gate", "up", "down")
ADAPTED = {"adapter": "lora", "lora_rank": 8, "lora_targets": EVERY}
LIGER: dict[str, object] = {"fused_norms": True, "fused_activation": True}
PLAIN: dict[str, object] = {"kv_heads": 8, "gated": False, "norm": "layernorm", "learned_positions": 2048}
FUSED: dict[str, object] = {"fused_projections": True}
SPLIT: dict[str, object] = {"split_rotation": True}
MIXTURE: dict[str, object] = {"experts": 4, "experts_per_token": 2}
BIASED: dict[str, object] = {"attention_bias": True, "output_bias": True, "feed_forward_bias": True}
MIDDLE = (".layers.1", ".h.1")


Asked: TypeAlias = tuple[ModelNumbers, Settings, PlanNumbers]


@dataclasses.dataclass(frozen=True)
class Layer(Case):
    """A layer, as the script makes it and as the library describes it.

    Parameters
    ----------
    model, plan : fields of `Transformer` and `Plan` that differ
    software : fields of `Framework` that differ
    """

    title = "What a layer saves for its backward pass, of a small model, a token and channel:"
    columns, numbers = "case software bytes traced formula", 3
    script = "saved.py"

    model: dict[str, object] = dataclasses.field(default_factory=dict)
    plan: dict[str, object] = dataclasses.field(default_factory=dict)
    software: dict[str, object] = dataclasses.field(default_factory=dict)

    @property
    def packages(self) -> tuple[str, ...]:
        """That it needs beside PyTorch and transformers."""
        needed = {"peft": "lora", "liger_kernel": "liger"}
        return tuple(name for name, word in needed.items() if word in self.arguments)

    def asked(self) -> Asked:
        """The question as formulas take it."""
        software = {"autocast_context": "autocast" in self.arguments, **self.software}
        framework = dataclasses.replace(load_framework("hf-trainer"), **software)  # type: ignore[arg-type]
        model = dataclasses.replace(SHAPE, **self.model)  # type: ignore[arg-type]
        given = {"recompute": "none", **self.plan}
        plan = Plan(global_batch=BATCH, micro_batch=BATCH, seq_len=SEQUENCE, data_parallel=1, dtype="bf16", **given)  # type: ignore[arg-type]
        return model.numbers(), plan.settings(framework), plan.numbers(framework, LAYERS)

    def told(self) -> float:
        """Bytes of a layer and micro-batch by the library's formula."""
        numbers = shape, settings, split = self.asked()
        if self.plan.get("recompute") == "full":
            return float(activations.checkpoint(*numbers))
        matrices = layer.layer_parameters(shape, split) - shape.norms * shape.norm_vectors * shape.hidden
        matrices = matrices - traffic.biases(shape, settings)  # vectors are without channels
        return float(activations.layer_activations(*numbers) + adapters.unpacked_weights(settings, matrices))

    def rows(self, trace: Trace) -> list[Compared]:
        """Bytes, and those a token and channel."""
        really, says, each = channels(kept(trace.roles[0])), self.told(), TOKENS * SHAPE.hidden
        return [((self.versions(trace, "transformers"), f"{really:,}", f"{really / each:g}", f"{says / each:g}"), really == says)]


CASES = {
    case.name: case
    for case in (
        Layer("Llama", ("llama",)),
        Layer("Llama, recomputed", ("llama", "checkpoint"), plan={"recompute": "full"}),
        Layer("Llama, recomputed, reentrant", ("llama", "checkpoint", "reentrant"), plan={"recompute": "full"}),
        Layer("Llama with LoRA", ("llama", "lora"), plan=ADAPTED, software={"wide_adapters": False, "adapter_dropout": False}),
        Layer("Llama with LoRA that drops out", ("llama", "lora", "dropout"), plan=ADAPTED, software={"wide_adapters": False}),
        Layer("Llama with LoRA in 32 bit", ("llama", "lora", "wide", "autocast"), plan=ADAPTED,
              software={"adapter_dropout": False}),
        Layer("Llama with LoRA in 32 bit that drops out", ("llama", "lora", "wide", "autocast", "dropout"), plan=ADAPTED),
        Layer("Llama with LoRA in 32 bit, nothing cast", ("llama", "lora", "wide"), plan=ADAPTED,
              software={"adapter_dropout": False, "wide_quantised": True, "mixed_precision": False}),
        Layer("Llama with LoRA beside weights in 32 bit", ("llama", "lora", "wide", "full", "autocast"),
              plan=ADAPTED | {"base_dtype": "fp32"}, software={"adapter_dropout": False}),
        Layer("Llama with LoRA beside weights in 32 bit that drops out", ("llama", "lora", "wide", "full", "autocast", "dropout"),
              plan=ADAPTED | {"base_dtype": "fp32"}),
        Layer("GPT-NeoX with LoRA that drops out", ("gpt_neox", "lora", "dropout"),
              PLAIN | {"learned_positions": 0, "parallel_block": True, **FUSED, **SPLIT}, ADAPTED,
              {"wide_adapters": False}),
        Layer("Phi-3 with LoRA that drops out", ("phi3", "lora", "dropout"), {**FUSED, **SPLIT}, ADAPTED,
              {"wide_adapters": False}),
        Layer("Llama of weights in 32 bit", ("llama", "full", "autocast"), plan={"base_dtype": "fp32"}),
        Layer("Llama, padded", ("llama", "padded"), plan={"batching": "padded-whole"}),
        Layer("Llama, padded, recomputed", ("llama", "padded", "checkpoint"),
              plan={"batching": "padded-whole", "recompute": "full"}),
        Layer("Llama with Liger's kernels", ("llama", "liger"), plan=LIGER),
        Layer("Llama with Liger's kernels under autocast", ("llama", "liger", "full", "autocast"),
              plan={"base_dtype": "fp32"} | LIGER),
        Layer("Llama with Liger's kernels, LoRA in 32 bit that drops out",
              ("llama", "liger", "lora", "wide", "autocast", "dropout"), plan=ADAPTED | LIGER),
        Layer("Gemma with Liger's kernels", ("gemma", "liger"), {"wide_norm": True}, LIGER),
        Layer("GPT-2", ("gpt2",), PLAIN | BIASED | {"activation": "gelu-new", **FUSED}),
        Layer("OPT", ("opt",), PLAIN | BIASED | {"activation": "relu"}),
        Layer("GPT-NeoX", ("gpt_neox",), PLAIN | BIASED | {"learned_positions": 0, "parallel_block": True, **FUSED, **SPLIT}),
        Layer("Falcon", ("falcon",), PLAIN | {"learned_positions": 0, "parallel_block": True, "norms_per_layer": 1, **FUSED},
              {"batching": "padded-whole"}),
        Layer("Phi", ("phi",), PLAIN | BIASED | {"learned_positions": 0, "parallel_block": True, "norms_per_layer": 1,
                                                "kv_heads": 4, "activation": "gelu-new", **SPLIT}),
        Layer("Phi-3", ("phi3",), {**FUSED, **SPLIT}),
        Layer("Gemma", ("gemma",), {"wide_norm": True}),
        Layer("StableLM", ("stablelm",), {"norm": "layernorm", **SPLIT}),
        Layer("Llama under autocast", ("llama", "full", "autocast"), software={"autocast": True}),
        Layer("Llama under autocast, recomputed", ("llama", "full", "autocast", "checkpoint"), plan={"recompute": "full"},
              software={"autocast": True}),
        Layer("GPT-2 under autocast", ("gpt2", "full", "autocast"), PLAIN | BIASED | {"activation": "gelu-new", **FUSED},
              software={"autocast": True}),
        Layer("Qwen3", ("qwen3",), {"qk_norm": "head"}),
        Layer("Mixtral", ("mixtral",), MIXTURE | {"expert_feed_forward": 768}),
        Layer("Qwen3-MoE", ("qwen3_moe",), MIXTURE | {"expert_feed_forward": 96, "qk_norm": "head"}),
        Layer("Qwen3-MoE, recomputed", ("qwen3_moe", "checkpoint"), MIXTURE | {"expert_feed_forward": 96, "qk_norm": "head"},
              {"recompute": "full"}),
    )
}  # fmt: skip
"""By name."""


def kept(role: Role) -> Counter[tuple[str, str, int]]:
    """Dtype, operator and bytes of what the middle layer holds as the last step's backward pass begins."""
    storages, step = role.storages, role.step()
    backward = PHASES.index("backward")
    begins = next(
        row for row in step
        if role.timeline.action[row] == KERNEL and role.kernels.phase[role.timeline.item[row]] == backward
    )  # fmt: skip
    return Counter(
        (role.texts[storages.dtype[one]], role.texts[storages.op[one]], int(storages.bytes[one]))
        for one in living(role, begins)
        if storages.born[one] >= step.start and any(name in role.texts[storages.module[one]] for name in MIDDLE)
    )


def channels(found: Counter[tuple[str, str, int]]) -> int:
    """Bytes of what has channels: not a norm's root, a number a token or a head; nor a router's choice, nor a seed."""
    return sum(nbytes * count for (dtype, op, nbytes), count in found.items() if not _without_channels(dtype, op, nbytes))


def _without_channels(dtype: str, op: str, nbytes: int) -> bool:
    few = nbytes < 16 * TOKENS and "attention" not in op  # but what attention keeps of its softmax
    return op in ("aten.rsqrt", "aten._softmax") or dtype.startswith(("int", "uint")) or few
