"""What a fine-tune's GPU holds at its fullest moment, as traced, beside the bill that `estimate` gives of the same question.

`python -m tests.audits.peaks --draw 20 --seed 1` draws questions.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from costmodel import Plan, Transformer, estimate, load_cluster, load_model
from costmodel.evaluation.estimation import Estimate
from costmodel.text.errors import CostModelError
from costmodel.traces.memory import held_bytes, living, memory_of_trace
from costmodel.traces.record import KINDS, Role, Trace
from tests.audits.case import CLUSTER, Case, Compared

NEAR = 0.02
"""Share of the peak by which both may differ: a trace's is known to so much."""
GIB = 2**30


class Family(NamedTuple):
    """How Hugging Face calls a kind of model, its layer, and what its configuration has beside sizes."""

    kind: str
    layer: str
    more: dict[str, Any]


FAMILIES = {
    "llama": Family("llama", "LlamaDecoderLayer", {}), "qwen3": Family("qwen3", "Qwen3DecoderLayer", {}),
    "mistral": Family("mistral", "MistralDecoderLayer", {"sliding_window": None}),
    "gemma2": Family("gemma2", "Gemma2DecoderLayer", {}), "gemma3": Family("gemma3_text", "Gemma3DecoderLayer", {}),
    "phi3": Family("phi3", "Phi3DecoderLayer", {"pad_token_id": 0, "resid_pdrop": 0.0}),
    "pythia": Family("gpt_neox", "GPTNeoXLayer", {"attention_dropout": 0.0, "hidden_dropout": 0.0}),
    "mixtral": Family("mixtral", "MixtralDecoderLayer", {"sliding_window": None}),
}  # fmt: skip
"""By the beginning of a name in the catalogue."""
MIXTURE = Family("qwen3_moe", "Qwen3MoeDecoderLayer", {"decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True})
SHARED = {"zero1": 1, "zero2": 2, "zero3": 3, "fsdp1": 3, "fsdp2": 3}
"""Stages of ZeRO that ways to share a model amount to."""
KERNELS = {"sdpa": None, "flash": "flash", "eager": "unfused"}
OPTIMIZERS = {
    "adamw_torch": None, "adamw_torch_fused": None, "adamw_8bit": "adam-8bit", "adafactor": "adafactor", "sgd": "sgd",
}  # fmt: skip
QUANTISED = ("qlora", "int8-lora")
TOLD = {
    "weight": ("weights",), "gradient": ("gradients",), "optimizer": ("optimizer",), "activation": ("activations", "logits"),
    "temporary": ("temporaries",), "bucket": ("buffers",), "input": (), "other": (),
}  # fmt: skip
"""Parts of a bill by the kinds of a trace; logits at the loss are saved, or pass."""


@dataclasses.dataclass(frozen=True)
class Choices:
    """A question of a fine-tune, as its user has it.

    Parameters
    ----------
    model : of the catalogue
    layers : of it; 0 for all
    how : "single", "ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3"
    gpus : of the run
    door : "trainer", "sft" or "loop"
    adapter : "none", "lora", "qlora" or "int8-lora"
    weights : as the model is made, "bf16" or "fp32"
    autocast : ``bf16=True``
    recompute : "none", "full" or "reentrant"
    attention, optimizer : in Hugging Face's words
    offload : whether the optimizer's state lies on the host
    micro_batch, seq_len, accumulation : sizes
    dropout : of what adapters read
    liger : with Liger's kernels
    prepared : what lies beside quantised weights is in 32 bit, as peft prepares it
    """

    model: str = "llama3.2-1b"
    layers: int = 4
    how: str = "single"
    gpus: int = 1
    door: str = "trainer"
    adapter: str = "none"
    weights: str = "bf16"
    autocast: bool = True
    recompute: str = "none"
    attention: str = "sdpa"
    optimizer: str = "adamw_torch_fused"
    offload: bool = False
    micro_batch: int = 2
    seq_len: int = 1024
    accumulation: int = 1
    dropout: float = 0.05
    liger: bool = False
    prepared: bool = True

    @property
    def words(self) -> str:
        """The question, in words."""
        said = [f"{self.model}{f' of {self.layers} layers' if self.layers else ''}", f"{self.door}", f"{self.how} {self.gpus}",
                "full" if self.adapter == "none" else self.adapter, f"{self.weights}{' autocast' if self.autocast else ''}",
                f"recompute {self.recompute}", self.attention, self.optimizer,
                f"{self.micro_batch} x {self.seq_len}{f' x {self.accumulation}' if self.accumulation > 1 else ''}"]  # fmt: skip
        said += ["offload"] if self.offload else []
        said += ["Liger"] if self.liger else []
        said += [f"dropout {self.dropout:g}"] if self.adapter != "none" and self.dropout != 0.05 else []
        said += [] if self.prepared else ["as loaded"]
        return ", ".join(said)

    def shape(self) -> Transformer:
        """The model."""
        whole = load_model(self.model)
        if not self.layers:
            return whole
        windowed = whole.windowed_layers * self.layers // whole.layers
        return dataclasses.replace(whole, layers=self.layers, windowed_layers=windowed, published_parameters=None)

    def family(self) -> Family:
        """The model's."""
        if "a3b" in self.model:
            return MIXTURE
        return next(family for name, family in FAMILIES.items() if self.model.startswith(name))

    def config(self) -> dict[str, Any]:
        """The model as Hugging Face configures it."""
        model, family = self.shape(), self.family()
        sizes = {
            "model_type": family.kind, "hidden_size": model.hidden,
            "intermediate_size": model.feed_forward or model.expert_feed_forward,
            "num_hidden_layers": model.layers, "num_attention_heads": model.heads, "num_key_value_heads": model.kv_heads,
            "head_dim": model.head_dim, "vocab_size": model.vocabulary, "tie_word_embeddings": model.tied_embeddings,
            "max_position_embeddings": 32768,
        }  # fmt: skip
        if family.kind in ("gpt_neox", "phi3"):
            sizes.pop("head_dim")
        if family.kind == "gpt_neox":
            sizes.pop("num_key_value_heads")
        if family.kind in ("phi3", "gemma2", "gemma3_text"):
            sizes["sliding_window"] = model.sliding_window
        if family.kind == "qwen3_moe":
            sizes |= {"num_experts": model.experts, "num_experts_per_tok": model.experts_per_token,
                      "moe_intermediate_size": model.expert_feed_forward}  # fmt: skip
        if family.kind == "mixtral":
            sizes |= {"num_local_experts": model.experts, "num_experts_per_tok": model.experts_per_token}
        return sizes | family.more

    def arguments(self) -> tuple[str, ...]:
        """Of the script."""
        return (json.dumps(dataclasses.asdict(self) | {"config": self.config(), "layer": self.family().layer}),)

    def framework(self) -> str:
        """What a user calls it."""
        if self.how.startswith("fsdp"):
            return {"fsdp1": "hf-fsdp", "fsdp2": "hf-fsdp2"}[self.how]
        return "deepspeed" if self.how.startswith("zero") else "trl" if self.door == "sft" else "hf-trainer"

    def plan(self) -> Plan:
        """What a user says of it."""
        return Plan(
            global_batch=self.micro_batch * self.accumulation * self.gpus, seq_len=self.seq_len, micro_batch=self.micro_batch,
            data_parallel=self.gpus, zero_stage=SHARED.get(self.how, 0), dtype="bf16",
            recompute="none" if self.recompute == "none" else "full",
            reentrant=self.recompute == "reentrant" if self.recompute != "none" else None,
            adapter=self.adapter, lora_rank=16 if self.adapter != "none" else None,
            adapter_dropout=self.dropout > 0.0 if self.adapter != "none" else None,
            wide_residual=self.prepared if self.adapter in QUANTISED else None,
            lora_targets="attention" if self.adapter != "none" and self.shape().experts else None,  # experts are no ``nn.Linear``
            base_dtype="fp32" if self.weights == "fp32" else None,
            mixed_precision=None if self.how.startswith("zero") else self.autocast, attention=KERNELS[self.attention],
            optimizer=OPTIMIZERS[self.optimizer], optimizer_kernel="foreach" if self.optimizer == "adamw_torch" else None,
            optimizer_offload=float(self.offload),
            loss=None if self.liger and self.door != "sft" else {"loop": "upcast-kept", "sft": "tiled"}.get(self.door),
            fused_norms=True if self.liger else None, fused_activation=True if self.liger else None,
            fused_cross_entropy=True if self.liger and self.door != "sft" else None,
        )  # fmt: skip

    def told(self) -> Estimate:
        """The library's answer."""
        return estimate(self.shape(), load_cluster(CLUSTER, gpus=self.gpus), self.plan(), self.framework())


@dataclasses.dataclass(frozen=True)
class Peak(Case):
    """A question, traced and told.

    Parameters
    ----------
    choices : `Choices`
    """

    title = "What tensors hold at the fullest moment of a step [GiB]:"
    columns, numbers = "case software traced told difference", 3
    script = "peaks.py"

    choices: Choices

    @property
    def gpus(self) -> int:  # type: ignore[override]
        """Of the run."""
        return self.choices.gpus

    @property
    def shown(self) -> tuple[int, ...]:  # type: ignore[override]
        """The fullest rank: at ZeRO-2 the last, whose share of gradients is there first, at ZeRO-1 one that owns no edge."""
        how, last = self.choices.how, self.gpus - 1
        return ({"zero1": last // 2, "zero2": last}.get(how, 0),)

    @property
    def file(self) -> str:
        """Name of its trace's file."""
        return self.choices.words.replace(" ", "_").replace(",", "")

    @property
    def packages(self) -> tuple[str, ...]:
        """That it needs beside PyTorch and transformers."""
        asked = self.choices
        more = {"deepspeed": asked.how.startswith("zero"), "peft": asked.adapter != "none", "accelerate": asked.door != "loop",
                "trl": asked.door == "sft", "datasets": asked.door == "sft", "liger_kernel": asked.liger,
                "bitsandbytes": asked.adapter in QUANTISED or asked.optimizer == "adamw_8bit"}  # fmt: skip
        return tuple(name for name, needed in more.items() if needed)

    def told(self) -> float:
        """Bytes of tensors, but for the workspaces of libraries, which a trace hasn't."""
        answer = self.choices.told()
        return answer.memory.allocated - float(answer.inputs[4].memory.workspace)

    def rows(self, trace: Trace) -> list[Compared]:
        """Bytes at the peak."""
        really, says = held(trace.roles[-1]), self.told()
        off = f"{100.0 * (says / really - 1.0):+.1f} %"
        cells = self.versions(trace, "transformers"), f"{really / GIB:.2f}", f"{says / GIB:.2f}", off
        return [(cells, abs(says / really - 1.0) < NEAR)]


def case(choices: Choices, name: str = "") -> Peak:
    """A question as a case."""
    return Peak(name or choices.words, choices.arguments(), choices)


def held(role: Role) -> float:
    """Bytes that the last step holds at its fullest."""
    step = role.step()
    return float(held_bytes(role)[step.start : step.stop].max())


def at_peak(role: Role) -> dict[str, float]:
    """Bytes of each kind at the last step's fullest moment."""
    step = role.step()
    row = step.start + int(np.argmax(held_bytes(role)[step.start : step.stop]))
    alive = living(role, row)
    kinds, sizes = role.storages.kind[alive], role.storages.bytes[alive]
    return {kind: float(sizes[kinds == place].sum()) for place, kind in enumerate(KINDS)}


CASES = {
    one.name: one
    for one in (
        case(Choices("llama3.2-1b", 0, optimizer="adafactor", recompute="full", micro_batch=4), "Llama, Adafactor"),
        case(Choices("qwen3-30b-a3b", 2, autocast=False, micro_batch=1, seq_len=512), "Qwen3-MoE, AdamW in 16 bit"),
        case(Choices("qwen3-4b", 4, weights="fp32", recompute="full", attention="flash", optimizer="adamw_8bit", seq_len=512),
             "Qwen3 under autocast, 8-bit moments"),
        case(Choices("pythia-6.9b", 4, weights="fp32", optimizer="adafactor", seq_len=4096, accumulation=4),
             "GPT-NeoX under autocast, Adafactor"),
        case(Choices("pythia-6.9b", 4, autocast=False, recompute="full", attention="flash", micro_batch=4, seq_len=4096),
             "GPT-NeoX, recomputed"),
        case(Choices("gemma3-1b", 6, attention="eager", optimizer="sgd", micro_batch=4, seq_len=2048), "Gemma 3, eager, SGD"),
        case(Choices("gemma2-2b", 4, adapter="lora", recompute="full", attention="eager", micro_batch=4, seq_len=512),
             "Gemma 2 with LoRA, eager"),
        case(Choices("pythia-6.9b", 4, adapter="lora", weights="fp32", recompute="reentrant", attention="flash", seq_len=4096,
                     optimizer="adamw_torch"), "GPT-NeoX with LoRA beside 32 bit"),
        case(Choices("qwen3-4b", 4, "ddp", 4, adapter="lora", autocast=False, recompute="full", attention="eager", micro_batch=4,
                     seq_len=2048, accumulation=4, optimizer="adamw_torch"), "Qwen3 with LoRA by DDP, eager"),
        case(Choices("llama3-8b", 4, door="loop", adapter="lora", autocast=False, recompute="reentrant", micro_batch=4,
                     seq_len=4096), "Llama with LoRA in a loop"),
        case(Choices("qwen3-0.6b", 6, "fsdp1", 8, adapter="lora", autocast=False, recompute="reentrant", attention="flash",
                     seq_len=4096), "Qwen3 with LoRA by FSDP1"),
        case(Choices("phi3-mini-4k", 4, adapter="qlora", optimizer="adamw_torch", micro_batch=4, seq_len=2048, accumulation=4),
             "Phi-3 with QLoRA"),
        case(Choices("mistral-7b", 4, adapter="lora", recompute="full", attention="eager", seq_len=2048),
             "Mistral with LoRA, eager, recomputed"),
        case(Choices("llama3.2-1b", 4, door="sft"), "Llama by SFTTrainer"),
        case(Choices("qwen3-4b", 4, door="sft", adapter="lora", seq_len=2048), "Qwen3 with LoRA by SFTTrainer"),
        case(Choices("llama3-8b", 4, "fsdp2", 4, recompute="full"), "Llama by FSDP2"),
        case(Choices("llama3-8b", 4, "fsdp2", 4, recompute="full", accumulation=4), "Llama by FSDP2, four micro-batches"),
        case(Choices("llama3-8b", 4, "fsdp2", 4, adapter="lora"), "Llama with LoRA by FSDP2"),
        case(Choices("qwen3-4b", 4, "fsdp2", 2, recompute="full", seq_len=512), "Qwen3 by FSDP2"),
        case(Choices("llama3-8b", 4, "fsdp2", 4, autocast=False, recompute="full"), "Llama in 16 bit by FSDP2"),
        case(Choices("llama3-8b", 4, "fsdp2", 4, autocast=False, adapter="lora"), "Llama in 16 bit with LoRA by FSDP2"),
        case(Choices("llama3-8b", 4, "fsdp1", 4, recompute="full"), "Llama by FSDP1"),
        case(Choices("qwen3-8b", 4, "fsdp2", 8, door="sft", autocast=False, recompute="reentrant"), "Qwen3 by TRL and FSDP2"),
        case(Choices("mixtral-8x7b", 2, "fsdp2", 8, adapter="lora", autocast=False, recompute="full", micro_batch=1,
                     seq_len=4096), "Mixtral with LoRA by FSDP2"),
        case(Choices("pythia-1.4b", 6, door="sft", attention="flash", optimizer="sgd", micro_batch=4, accumulation=4),
             "GPT-NeoX by SFTTrainer"),
        case(Choices("pythia-6.9b", 4, door="sft", adapter="lora", weights="fp32", recompute="reentrant", attention="flash",
                     optimizer="adafactor", micro_batch=4, seq_len=4096), "GPT-NeoX with LoRA by SFTTrainer"),
        case(Choices("llama3.2-1b", 0, weights="fp32", recompute="reentrant", optimizer="adamw_8bit", micro_batch=1,
                     accumulation=4), "Llama beside 32 bit, recomputed"),
        case(Choices("gemma3-1b", 6, "zero1", 2, door="loop", recompute="full", offload=True, seq_len=512),
             "Gemma 3 by ZeRO-1 in a loop, updated on the host"),
        case(Choices("llama3.2-1b", 0, liger=True, weights="fp32", micro_batch=4), "Llama under autocast, Liger"),
        case(Choices("qwen3-4b", 4, liger=True, micro_batch=4), "Qwen3, Liger"),
        case(Choices("llama3-8b", 4, liger=True, adapter="lora"), "Llama with LoRA, Liger"),
        case(Choices("llama3-8b", 4, "fsdp2", 8, liger=True, recompute="full", micro_batch=4, seq_len=4096),
             "Llama by FSDP2, recomputed, Liger"),
        case(Choices("llama3-8b", 4, adapter="int8-lora", recompute="full"), "Llama with LoRA beside 8 bit, recomputed"),
        case(Choices("qwen3-4b", 4, door="sft", adapter="int8-lora", recompute="reentrant", micro_batch=4, seq_len=2048),
             "Qwen3 with LoRA beside 8 bit by TRL, recomputed, reentrant"),
        case(Choices("llama3-8b", 4, adapter="int8-lora", autocast=False, seq_len=2048),
             "Llama with LoRA beside 8 bit, nothing cast"),
        case(Choices("llama3.2-1b", 0, door="loop", adapter="int8-lora", autocast=False, recompute="reentrant", micro_batch=4),
             "Llama with LoRA beside 8 bit in a loop"),
        case(Choices("llama3-8b", 4, adapter="qlora", autocast=False, recompute="full", seq_len=2048),
             "Llama with QLoRA, without autocast"),
        case(Choices("llama2-7b", 4, adapter="qlora", dropout=0.0), "Llama with QLoRA, nothing dropped out"),
        case(Choices("llama2-7b", 4, door="sft", adapter="qlora", dropout=0.0, prepared=False),
             "Llama with QLoRA by SFTTrainer, as loaded, nothing dropped out"),
        case(Choices("llama2-7b", 4, door="sft", adapter="qlora", prepared=False), "Llama with QLoRA by SFTTrainer, as loaded"),
        case(Choices("llama2-7b", 4, door="sft", adapter="int8-lora", dropout=0.0, prepared=False),
             "Llama with LoRA beside 8 bit by SFTTrainer, as loaded, nothing dropped out"),
        case(Choices("llama3-8b", 4, "zero1", 8, recompute="full"), "Llama by ZeRO-1"),
        case(Choices("llama3-8b", 4, "zero1", 4, recompute="full", accumulation=4), "Llama by ZeRO-1, four micro-batches"),
        case(Choices("llama3-8b", 4, "zero2", 4, recompute="full"), "Llama by ZeRO-2"),
        case(Choices("llama3-8b", 4, "zero2", 4, recompute="full", accumulation=4), "Llama by ZeRO-2, four micro-batches"),
        case(Choices("llama3-8b", 4, "zero2", 4, recompute="full", offload=True), "Llama by ZeRO-2, updated on the host"),
        case(Choices("llama3-8b", 4, "zero2", 4, adapter="lora"), "Llama with LoRA by ZeRO-2"),
        case(Choices("llama2-7b", 4, "zero2", 4, adapter="qlora", attention="flash"), "Llama with QLoRA by ZeRO-2"),
        case(Choices("llama3-8b", 4, "zero3", 4, recompute="full"), "Llama by ZeRO-3"),
        case(Choices("llama3-8b", 8, "zero3", 8, adapter="lora", attention="flash", micro_batch=1, seq_len=4096),
             "Llama with LoRA by ZeRO-3"),
        case(Choices("llama2-70b", 4, "zero3", 8, adapter="lora", recompute="reentrant", attention="flash", micro_batch=8,
                     seq_len=2048, dropout=0.1), "Llama with LoRA by ZeRO-3, recomputed, reentrant"),
        case(Choices("llama3-8b", 4, "zero3", 4, recompute="full", offload=True), "Llama by ZeRO-3, updated on the host"),
        case(Choices("llama3.2-1b", 4, "ddp", 8, weights="fp32", micro_batch=1, seq_len=4096, optimizer="adamw_torch"),
             "Llama by DDP beside 32 bit"),
    )
}  # fmt: skip
"""By name."""

MODELS = (
    ("llama3.2-1b", (4, 0)), ("qwen3-0.6b", (6,)), ("qwen3-4b", (4,)), ("qwen3-8b", (4,)), ("llama3-8b", (4, 8)),
    ("gemma2-2b", (4,)), ("gemma3-1b", (6,)), ("mistral-7b", (4,)), ("phi3-mini-4k", (4,)), ("pythia-1.4b", (6,)),
    ("pythia-6.9b", (4,)), ("qwen3-30b-a3b", (2,)), ("mixtral-8x7b", (2,)),
)  # fmt: skip


def drawn(count: int, seed: int) -> list[Choices]:
    """Questions at random, those that packages refuse left out.

    Parameters
    ----------
    count : of them
    seed : of the draw
    """
    draw = random.Random(seed)
    found: list[Choices] = []
    while len(found) < count:
        model, sizes = draw.choice(MODELS)
        how = draw.choice(("single", "single", "single", "ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3"))
        adapter = draw.choice(("none", "none", "lora", "lora", "qlora", "int8-lora"))
        door = draw.choice(("trainer", "trainer", "trainer", "trainer", "sft", "sft", "loop", "loop"))
        weights, autocast = draw.choice((("bf16", True), ("bf16", False), ("fp32", True)))
        asked = Choices(
            model, draw.choice(sizes), how, 1 if how == "single" else draw.choice((2, 4, 8)), door, adapter, weights, autocast,
            draw.choice(("none", "full", "reentrant")), draw.choice(("sdpa", "sdpa", "flash", "eager")),
            draw.choice(("adamw_torch_fused", "adamw_torch_fused", "adamw_torch", "adamw_8bit", "adafactor", "sgd")),
            draw.random() < 0.3 and how.startswith("zero"), draw.choice((1, 2, 4)), draw.choice((512, 1024, 2048, 4096)),
            draw.choice((1, 1, 4)), liger=draw.random() < 0.25,
        )  # fmt: skip
        if runs(asked):
            found.append(asked)
    return found


def runs(asked: Choices) -> bool:
    """Whether software has it, and a reader would ask it."""
    sharded, zero = asked.how.startswith("fsdp"), asked.how.startswith("zero")
    return not (
        (asked.adapter in QUANTISED and (asked.how not in ("single", "ddp") or asked.weights == "fp32"))
        or (zero and (asked.weights == "fp32" or asked.optimizer != "adamw_torch_fused"))
        or (zero and asked.adapter != "none" and asked.offload)
        or (sharded and (asked.door == "loop" or asked.optimizer not in ("adamw_torch_fused", "adamw_torch")))
        or (asked.door == "loop" and asked.optimizer in ("adafactor", "adamw_8bit"))  # the Trainer's, as it sets them up
        or (asked.liger and (asked.shape().experts or asked.model.startswith(("pythia", "phi3"))))
        or (asked.how == "ddp" and asked.recompute == "reentrant")
        or (asked.attention == "eager" and asked.seq_len > 2048)
        or (asked.attention == "flash" and asked.model.startswith("gemma"))
        or (asked.attention == "flash" and asked.adapter in QUANTISED and not asked.autocast)  # no flash kernel is in 32 bit
        or (asked.attention == "sdpa" and asked.model.startswith("gemma2"))
        or (zero and not asked.autocast)
        or (asked.door == "loop" and asked.model.startswith("mixtral") and asked.autocast)
        or (asked.shape().experts and (asked.weights == "fp32" or asked.adapter in QUANTISED))  # ``grouped_mm`` wants 16 bit
    )


def line(asked: Choices, trace: Trace) -> tuple[float, str]:
    """How far a question's bill is off, and both in words, kind by kind."""
    role, answer = trace.roles[-1], asked.told()
    really, says = held(role), case(asked).told()
    kinds, parts = at_peak(role), answer.memory
    beside = "; ".join(
        f"{kind} {kinds[kind] / GIB:.2f}|{sum(getattr(parts, name) for name in names) / GIB:.2f}"
        for kind, names in TOLD.items() if kinds[kind] > 2**20 or names
    )  # fmt: skip
    cluster = load_cluster(CLUSTER, gpus=asked.gpus)
    reserved = memory_of_trace(trace, cluster, asked.framework()).reserved
    whole = f"reserved {reserved / GIB:.2f}|{parts.reserved / GIB:.2f}"
    share = says / really - 1.0
    told = f"{100 * share:+6.1f} %  {really / GIB:.2f}|{says / GIB:.2f} GiB  {asked.words}"
    return share, f"{told}\n          {parts.phase}: {beside}; {whole}"


def compared(questions: Iterable[Choices], folder: Path) -> list[tuple[float, str]]:
    """Every question beside its trace, printed as it is found."""
    found = []
    for asked in questions:
        path = folder / f"{case(asked).file}.npz"
        try:
            if not path.exists():
                folder.mkdir(parents=True, exist_ok=True)
                case(asked).traced().save(path)
            one = line(asked, Trace.load(path))
        except CostModelError as refused:
            print(f"  none    {asked.words}\n          {str(refused)[:600]}", flush=True)
            continue
        print(one[1], flush=True)
        found.append(one)
    return found


def main() -> None:
    """Draw, trace, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", default="traces", help="folder for the traces, which are read from there where they are")
    asked = parser.parse_args()
    found = compared(drawn(asked.draw, asked.seed), Path(asked.keep))
    off = sorted(abs(share) for share, _ in found)
    print(f"{len(found)} questions: {100 * sum(off) / len(off):.1f} % on average, {100 * off[-1]:.1f} % at worst, "
          f"{sum(one < NEAR for one in off)} within {100 * NEAR:g} %")  # fmt: skip


if __name__ == "__main__":
    main()
