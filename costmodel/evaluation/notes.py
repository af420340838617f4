"""What a person should know of an answer besides its numbers: choices that change nothing, lengths never trained."""

from __future__ import annotations

import dataclasses
import math

from costmodel.catalogue import releases
from costmodel.catalogue.software import framework_names, framework_on
from costmodel.description.fields import table
from costmodel.description.plan import Plan
from costmodel.description.question import Question
from costmodel.evaluation.engine import evaluate_one
from costmodel.evaluation.estimation import Estimate
from costmodel.evaluation.loading import Loading
from costmodel.formulas.transformer.attention import under_mask
from costmodel.formulas.transformer.lengths import unsaid_mean
from costmodel.text.errors import CostModelError
from costmodel.text.units import GiB

DIVIDED = ("global_batch", "seq_len")
WORTH_A_WORD = 0.03
"""Share of time or memory by which another release of the software, or another kernel, is worth a word."""
WORTH_SAYING = 0.005
"""Share of a step by which own runs of similar plans change it."""


def inert_fields(answer: Estimate) -> tuple[str, ...]:
    """Fields of a plan that differ from their defaults and change neither the time nor the memory of its step.

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> plan = Plan(global_batch=64, seq_len=2048, data_parallel=8, sequence_parallel=True, micro_batch=2)
    >>> inert_fields(estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), plan))
    ('sequence_parallel',)
    """
    found = []
    for name, row in table(Plan).items():
        if name in DIVIDED or row.asked:
            continue
        try:
            usual = dataclasses.replace(answer.plan, **{name: row.default})
            usual = usual.resolve(answer.framework, answer.cluster.device)
            before, after = getattr(usual, name), getattr(answer.plan, name)
            as_usual = before is None and (after is False or not row.inert)  # said as it is taken unsaid; a loss leaves it open
            if before == after or as_usual or usual.gpus != answer.plan.gpus:
                continue
            usual.check(answer.model, answer.cluster, answer.framework)
            alike = evaluate_one(answer.question, usual) == answer.step
            if name == "loading":
                other, own = Loading(answer.question.inputs(usual)), answer.loading
                alike = other.device_bytes == own.device_bytes and other.host_bytes == own.host_bytes
        except CostModelError:  # the default can't run here, so that the choice does change something
            continue
        if alike:
            found.append(name)
    return tuple(found)


def unfilled_nodes(answer: Estimate) -> tuple[str, ...]:
    """What it costs that GPUs don't fill their nodes, or that tensor groups don't, in lines.

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> plan = Plan(global_batch=9, seq_len=2048, data_parallel=9)
    >>> unfilled_nodes(estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=9), plan))[0][:57]
    '9 GPUs leave 7 of 8 idle on the last of 2 nodes: exchange'
    """
    gpus, size = answer.plan.gpus, answer.cluster.gpus_per_node
    found: list[str] = []
    if gpus <= size:
        return ()
    if left := gpus % size:
        nodes = gpus // size + 1
        told = f"machine('{answer.cluster.device.name}', gpus={gpus}, nodes={nodes})"
        evenly = f", and {told} has {gpus // nodes} on each" if gpus % nodes == 0 else ""
        found.append(
            f"{gpus} GPUs leave {size - left} of {size} idle on the last of {nodes} nodes: exchange over all of them "
            f"goes at the rate of the {left} there; {gpus - left} or {gpus - left + size} fill their nodes{evenly}"
        )
    numbers = answer.inputs.plan
    span = int(numbers.tensor * numbers.tensor_stride)
    if 1 < span < size and size % span:
        found.append(
            f"tensor groups of {answer.plan.tensor_parallel} don't divide nodes of {size} GPUs, so that some lie on two: they "
            "are priced as those that lie on one"
        )
    return tuple(found)


def of_samples(plan: Plan) -> tuple[str, ...]:
    """What is taken for granted of samples of unlike lengths, in lines.

    Examples
    --------
    >>> of_samples(Plan(global_batch=8, seq_len=4096, batching="padded", mean_length=500))[0][:73]
    'samples of 500 tokens on average, 4,096 at most: their lengths are taken '
    """
    if plan.batching == "packed" and plan.mean_length is None:
        mean = unsaid_mean(float(plan.seq_len))
        return (f"packed samples are taken to have {mean:,.0f} tokens on average: mean_length says how long they are",)
    if plan.mean_length is None or plan.mean_length >= plan.seq_len:
        return ()
    held = "whole sequences" if plan.batching == "packed" else "samples that are all as long as the longest"
    return (
        f"samples of {plan.mean_length:,.0f} tokens on average, {plan.seq_len:,} at most: their lengths are taken to lie evenly "
        "between none and the most where the mean is half of it, exponentially where it is a small part; memory is that of a "
        f"micro-batch of {held}",
    )


def of_rotation(answer: Estimate) -> tuple[str, ...]:
    """That a framework is taken to rotate packed samples one by one, in a line; none where it doesn't."""
    if not answer.inputs.settings.framework.sample_rotation_kernels:
        return ()
    return (
        f"{answer.framework.name} is taken to rotate each packed sample's queries and keys by kernels of their own: "
        "framework.sample_rotation_kernels=0 where apply_rope_fusion is on, as its recipes have it of Llama and Nemotron",
    )


def of_loader(answer: Estimate) -> tuple[str, ...]:
    """That a framework's own loader would bin samples which the plan has full, in a line; none where it has no such loader.

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> plan = Plan(global_batch=64, seq_len=512, data_parallel=8, dtype="fp16", attention="unfused")
    >>> of_loader(estimate(load_model("gpt2"), load_cluster("dgx-a100", gpus=8), plan, "nvidia-deeplearningexamples"))[0][:66]
    'nvidia-deeplearningexamples bins samples of up to 512 tokens by le'
    """
    plan, framework = answer.plan, answer.framework
    if plan.batching != "full" or plan.seq_len != framework.binned_length:
        return ()
    return (
        f"{framework.name} bins samples of up to {framework.binned_length} tokens by length, and those of its own data have "
        f"{framework.binned_mean:g} on average: batching='grouped' with mean_length={framework.binned_mean:g} says so",
    )


def of_loading(answer: Estimate) -> tuple[str, ...]:
    """What a node's host memory lacks to load a model, in a line; none where it is enough, or isn't known.

    Examples
    --------
    >>> import dataclasses
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> small = dataclasses.replace(load_cluster("dgx-h100", gpus=8), host_memory=256e9)
    >>> plan = Plan(global_batch=8, seq_len=2048, data_parallel=8, adapter="lora")
    >>> of_loading(estimate(load_model("llama3-70b"), small, plan, "hf-fsdp@2025.6"))[0][:91]
    "to load the model takes 1,051 GiB of a node's host memory, which has 238: each rank has all"
    """
    limit, needs = answer.cluster.host_memory, answer.loading
    if limit is None or needs.host_bytes <= limit:
        return ()
    several = needs.one_rank_host_bytes < needs.host_bytes
    why = ": each rank has all of it there; loading=one-rank takes it once a node" if several else ""
    needed = f"{needs.host_bytes / GiB:,.0f} GiB of a node's host memory, which has {limit / GiB:,.0f}"
    return (f"to load the model takes {needed}{why}",)


def of_saving(answer: Estimate) -> tuple[str, ...]:
    """What a node's host memory lacks to save a model, in a line; none where it is enough, or isn't known."""
    limit, needed = answer.cluster.host_memory, answer.loading.saved_bytes
    if limit is None or needed <= limit:
        return ()
    return (
        f"a checkpoint that one rank gathers takes {needed / GiB:,.0f} GiB of its node's host memory, which has "
        f"{limit / GiB:,.0f}: save it in parts, each rank its own",
    )


def other_release(answer: Estimate) -> tuple[str, ...]:
    """Which release of its software an answer takes, in a line, where the one before would take another time or memory.

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> plan = Plan(global_batch=8, seq_len=2048, data_parallel=8, zero_stage=3)
    >>> dense, mixture = (estimate(load_model(name), load_cluster("dgx-h100", gpus=8), plan, "hf-trainer@2026-05")
    ...                   for name in ("llama3.2-1b", "qwen3-30b-a3b"))
    >>> other_release(dense), other_release(mixture)[0][:42]
    ((), 'hf-trainer@2026-05 as it has been since 20')
    """
    software = answer.framework
    named = releases.base_name(software.name)
    if not software.release or named not in framework_names() or software != framework_on(answer.cluster, software.name):
        return ()
    name = releases.dated(named, releases.earlier(software.release))
    before = Question(answer.model, answer.cluster, framework_on(answer.cluster, name))
    try:
        changes = _changes(answer, before, answer.plan)
    except CostModelError:  # it couldn't run this plan, which is no news of a plan that is run today
        return ()
    return (f"{software.name} as it has been since {software.release}; as {name} was: {changes}",) if changes else ()


def _changes(answer: Estimate, question: Question, plan: Plan) -> str:
    """By how much the step and the memory of another question, or plan, lie apart from an answer's; empty where by little."""
    step = evaluate_one(question, plan)
    return " and ".join(
        f"{what} {100.0 * (ratio - 1.0):+.0f} %"
        for what, ratio in (("step", step.total / answer.step.total), ("memory", step.memory.total / answer.step.memory.total))
        if abs(ratio - 1.0) >= WORTH_A_WORD
    )


def of_masks(answer: Estimate) -> tuple[str, ...]:
    """What a mask over padding costs beside a kernel that needs none, in a line.

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> plan = Plan(global_batch=4, micro_batch=4, seq_len=4096, batching="padded", recompute="full")
    >>> of_masks(estimate(load_model("llama3.2-1b"), load_cluster("dgx-h100", gpus=1), plan, "hf-trainer"))[0][:60]
    'padding is hidden by a mask, which PyTorch has a slower kern'
    """
    if not under_mask(answer.inputs.settings, answer.inputs.plan):
        return ()
    changes = _changes(answer, answer.question, dataclasses.replace(answer.plan, attention="flash"))
    told = f"padding is hidden by a mask, which PyTorch has a slower kernel for; with attention=flash: {changes}"
    return (told,) if changes else ()


def of_length(answer: Estimate) -> tuple[str, ...]:
    """Whether sequences are longer than those that the model was trained with; nothing where they aren't."""
    trained, length = answer.model.trained_length, answer.plan.seq_len
    if not trained or length <= trained:
        return ()
    return (f"seq_len={length} is beyond the {trained:,} tokens that {answer.model.name} was trained with: time and memory hold, "
            "but its positions need scaling or more training",)  # fmt: skip


def notes(answer: Estimate) -> tuple[str, ...]:
    """What should be known of an answer, in lines.

    Examples
    --------
    >>> from costmodel import estimate, load_cluster, load_model, Plan
    >>> long = Plan(global_batch=8, seq_len=32768, data_parallel=8)
    >>> notes(estimate(load_model("llama3-8b"), load_cluster("dgx-h100", gpus=8), long))[0][:62]
    'seq_len=32768 is beyond the 8,192 tokens that llama3-8b was tr'
    """
    plan = answer.plan
    found = [*of_length(answer)]
    common = math.log(answer.framework.own_factor)
    for whose, which, by in (("this cluster", "every", common), ("similar plans", "this", answer.discrepancy - common)):
        if abs(change := math.expm1(by)) >= WORTH_SAYING:
            found.append(
                f"own runs of {whose} {'lengthen' if change > 0.0 else 'shorten'} {which} estimate by {abs(change):.1%} beyond "
                "what the constants fitted to them give"
            )
    held = answer.framework.constants.memory.own - 1.0
    if abs(held) >= WORTH_SAYING:
        more = "more" if held > 0.0 else "less"
        found.append(f"own runs of this cluster hold {abs(held):.1%} {more} in tensors than is counted")
    found += (*of_samples(plan), *of_rotation(answer), *of_loader(answer))
    found += of_masks(answer)
    found += unfilled_nodes(answer)
    found += other_release(answer)
    found += (*of_loading(answer), *of_saving(answer))
    rows = table(Plan)
    for name in inert_fields(answer):
        value = getattr(plan, name)
        shown = "-".join(value) if isinstance(value, tuple) else value
        why = f": {rows[name].inert}" if rows[name].inert else ""
        found.append(f"{name}={shown} changes neither time nor memory of this plan{why}")
    return tuple(found)
