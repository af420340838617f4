"""In which words a plan is refused that breaks a rule of legality: a template for each rule.

A template has fields of the plan, of the model (``model.heads``) and the cluster's ``gpus`` in braces, or a product or quotient
of them. The library fills all of them in; a page those of the model, and its script the others.
"""

from __future__ import annotations

from costmodel.arithmetic.whole_numbers import divisors
from costmodel.description.transformer import Transformer
from costmodel.text.templates import Plain, filled

TEXTS = {
    "world_size": "tensor_parallel={tensor_parallel} x context_parallel={context_parallel} x "
    "pipeline_parallel={pipeline_parallel} x data_parallel={data_parallel} = "
    "{tensor_parallel*context_parallel*data_parallel*pipeline_parallel} does not equal the cluster's {gpus} GPUs",
    "tensor_heads": "tensor_parallel={tensor_parallel} does not divide {model.heads} attention heads of {model.name}; "
    "divisors: {model.divisors}",
    "tensor_kv_heads": "tensor_parallel={tensor_parallel} and kv_heads={model.kv_heads} of {model.name}: neither divides the "
    "other",
    "tensor_feed_forward": "tensor_parallel={tensor_parallel} does not divide feed_forward={model.feed_forward} of {model.name}",
    "pipeline_layers": "pipeline_parallel={pipeline_parallel} x virtual_stages={virtual_stages} does not divide {model.layers} "
    "layers of {model.name} (first and last stage may be short, but hold one layer, on zb-v's first rank none; with virtual "
    "stages each lacks at most one, but where a framework has them listed; where it deals layers by cost, no stage may be empty)",
    "virtual_stages": "virtual_stages={virtual_stages} with schedule={schedule} and pipeline_parallel={pipeline_parallel}: more "
    "than one chunk needs schedule 'interleaved' or 'breadth-first', a pipeline, and at most {model.layers} chunks in all",
    "pipeline_micro_batches": "pipeline_parallel={pipeline_parallel} does not divide {global_batch/data_parallel/micro_batch} "
    "micro-batches, which the interleaved schedule needs",
    "schedule": "schedule={schedule} with pipeline_parallel={pipeline_parallel} and {global_batch/data_parallel/micro_batch} "
    "micro-batches: zero-bubble, two-way and asynchronous schedules need a pipeline and at least as many micro-batches as stages "
    "(zb-h2 and zb-v one less than twice as many, dualpipe twice as many and even, chimera just as many); dualpipe and "
    "chimera need even stages; a framework that deals layers by cost has no zb-v, dualpipe or chimera",
    "global_batch": "global_batch={global_batch} is not a multiple of data_parallel={data_parallel} x micro_batch={micro_batch}",
    "sequence": "seq_len={seq_len} does not split over context_parallel={context_parallel} (two chunks each, but for "
    "'all-to-all') and, with sequence_parallel, tensor_parallel={tensor_parallel}",
    "context_heads": "context_communication={context_communication} with context_parallel={context_parallel} and "
    "tensor_parallel={tensor_parallel}: their product has to divide {model.heads} heads and {model.kv_heads} kv_heads of "
    "{model.name}",
    "state_heads": "tensor_parallel={tensor_parallel} does not divide the {model.recurrent_heads} heads with a state of "
    "{model.name}",
    "state_context": "context_parallel={context_parallel} with the {model.recurrent_layers} layers of {model.name} that keep a "
    "state: how a state passes between context ranks is not modelled",
    "experts": "expert_parallel={expert_parallel} x expert_tensor_parallel={expert_tensor_parallel} does not fit "
    "{model.experts} experts of {model.name}",
    "expert_ranks": "expert_parallel={expert_parallel} x expert_tensor_parallel={expert_tensor_parallel} does not divide "
    "data x context x tensor = {data_parallel*context_parallel*tensor_parallel} ranks",
    "expert_feed_forward": "expert_tensor_parallel={expert_tensor_parallel} does not divide "
    "expert_feed_forward={model.expert_feed_forward} of {model.name}",
    "shard_group": "shard_group={shard_group} does not divide data x context = {data_parallel*context_parallel} ranks",
    "synchronisation": "synchronisation={synchronisation} with zero_stage={zero_stage}: every rank must have a whole copy to "
    "synchronise, zero_stage=0",
    "compression": "compression={compression} with zero_stage={zero_stage}: every rank must have its gradients whole to compress "
    "them, zero_stage=0 or 1",
    "cuda_graphs": "cuda_graphs={cuda_graphs} with the {model.experts} experts of {model.name}: a graph has fixed shapes, and "
    "the tokens of an expert vary but for fused_experts, or where model.expert_capacity drops and pads them and "
    "dispatcher='all-to-all'; graph_modules='attention+router' leaves them out",
    "fused_experts": "fused_experts={fused_experts} with {model.experts} experts of {model.name} and "
    "expert_tensor_parallel={expert_tensor_parallel}: it fuses experts that no tensor group splits",
    "mean_length": "mean_length={mean_length} with seq_len={seq_len}: samples are longer on average than the longest",
    "unfused_context": "attention={attention} with context_parallel={context_parallel}: context parallelism needs the flash "
    "kernel",
}
"""By the rule of `costmodel.formulas.legality.Violations`."""
OF_MODEL = (
    "name", "heads", "kv_heads", "feed_forward", "layers", "experts", "expert_feed_forward", "recurrent_heads",
    "recurrent_layers",
)  # fmt: skip


def of_model(model: Transformer, most: int) -> dict[str, object]:
    """What templates name of a model.

    Parameters
    ----------
    model : that is trained
    most : largest divisor of its heads to name
    """
    named: dict[str, object] = {f"model.{name}": getattr(model, name) for name in OF_MODEL}
    return named | {"model.divisors": Plain(", ".join(map(str, divisors(model.heads, most))))}


def texts(model: Transformer) -> dict[str, str]:
    """The words of every rule with what they name of a model filled in: templates of a plan.

    Parameters
    ----------
    model : that is trained
    """
    known = of_model(model, model.heads)
    return {reason: filled(template, known) for reason, template in TEXTS.items()}


__all__ = ["TEXTS", "of_model", "texts"]
