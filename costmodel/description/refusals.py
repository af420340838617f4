"""In which words a plan is refused that breaks a rule of legality: a template for each rule, and a few words for how many did.

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
    "stages each lacks at most one, but where a framework has them listed; where it deals layers by cost, no stage may be empty; "
    "where the ends are given their layers, the others must go evenly into the stages between)",
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
    "sharded_int8": "adapter={adapter} with zero_stage={zero_stage}: no software shards weights that bitsandbytes holds in 8 "
    "bit, zero_stage=0, 1 or 2",
    "mean_length": "mean_length={mean_length} with seq_len={seq_len}: samples are longer on average than the longest",
    "unfused_context": "attention={attention} with context_parallel={context_parallel}: context parallelism needs the flash "
    "kernel",
    "update_in_backward": "update_in_backward={update_in_backward} with more than one micro-batch a step: gradients that are "
    "freed as they are made can't be summed",
    "stored_without_gate": "activation_input_dtype={activation_input_dtype}: what a gated activation reads is stored so, and "
    "the MLPs of {model.name} have no gate",
}
"""By the rule of `costmodel.formulas.legality.Violations`."""
REJECTED = {
    "zero_stage": "with a ZeRO stage that the framework lacks",
    "zero_pipeline": "with a ZeRO stage that the framework doesn't have under a pipeline",
    "parameter_offload": "with weights on the host that the stage of ZeRO doesn't shard",
    "degrees_of_framework": "with degrees that the framework lacks",
    "dtype_of_framework": "with a dtype that the framework lacks",
    "operators_of_framework": "with operators fused by Transformer Engine, which the framework doesn't use",
    "attention_of_framework": "with attention in a dtype that the framework lacks",
    "update_of_framework": "with updates within the backward pass, which the framework doesn't do",
    "paging_of_framework": "with a paged optimizer, which the framework doesn't take",
    "parameters_of_framework": "with weights in 8 or 4 bit alone, which the framework does not hold",
    "stages_of_framework": "with layers of the first or the last stage, which the framework deals itself",
    "stored_by_framework": "with the input of an activation stored in a dtype that the framework doesn't store",
    "precision_of_framework": "without the copy of weights in 32 bit that the framework trains",
    "attention_of_device": "with attention in a dtype that the device lacks",
    "schedule_of_framework": "with a schedule that the framework lacks",
    "context_of_framework": "with context communication that the framework lacks",
    "recompute_of_framework": "with recomputation that the framework lacks",
    "world_size": "with degrees that don't multiply to the GPUs",
    "tensor_heads": "with a tensor degree that doesn't divide the heads",
    "tensor_kv_heads": "with a tensor degree that doesn't fit the key/value heads",
    "tensor_feed_forward": "with a tensor degree that doesn't divide the MLP",
    "pipeline_layers": "with layers that don't split into the stages",
    "virtual_stages": "with virtual stages without interleaving",
    "pipeline_micro_batches": "with micro-batches that don't go round the pipeline",
    "schedule": "with a schedule without its pipeline",
    "global_batch": "with a global batch that doesn't split",
    "sequence": "with a sequence that doesn't split",
    "context_heads": "with heads that don't split over the context ranks",
    "state_heads": "with a tensor degree that doesn't divide the heads with a state",
    "state_context": "with context parallelism of layers with a state",
    "experts": "with an expert degree that doesn't divide the experts",
    "expert_ranks": "with an expert degree that doesn't divide the ranks",
    "expert_feed_forward": "with an expert-tensor degree that doesn't divide the expert",
    "shard_group": "with a shard group that doesn't divide the ranks",
    "cuda_graphs": "with graphs of experts that are not fused",
    "fused_experts": "with fused experts where there are none, or split ones",
    "unfused_context": "with context parallelism without flash attention",
    "update_in_backward": "with updates within the backward passes of several micro-batches",
    "stored_without_gate": "with the input of an activation without a gate stored in fewer bits",
    "sharded_int8": "with shards of weights in 8 bit, which no software has",
    "mean_length": "with samples longer on average than the longest",
    "repeated": "the same as another but in name",
}  # fmt: skip
"""Combinations that a search rejects, by the rule that they broke."""
RULED_OUT = "with a {} that its other choices rule out"
"""Those rejected for a field of a plan that isn't what another is."""
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
    """The words of every rule with what they name of a model filled in: templates of a plan."""
    known = of_model(model, model.heads)
    return {reason: filled(template, known) for reason, template in TEXTS.items()}
