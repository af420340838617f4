"""From code to a plan and back: the model, degrees and framework that a trace shows, what is better, and what-if on the trace.

What a trace says of itself (its facts) comes first; the rest is seen in who exchanges what, and in which pass.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from costmodel.description import huggingface
from costmodel.description.cluster import Cluster
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.evaluation.estimation import Estimate, estimate
from costmodel.evaluation.search_result import SearchResult
from costmodel.simulation.checking import search
from costmodel.text.errors import CostModelError, NotModelled
from costmodel.text.results import brief
from costmodel.text.units import counted
from costmodel.traces.builder import shape_of
from costmodel.traces.places import LEAST, even, framework_of
from costmodel.traces.record import BORN, KERNEL, KINDS, NOWHERE, PHASES, RECEIVE, SEND, TRANSACTION, Role, Trace

FORWARD, BACKWARD, OTHER = map(PHASES.index, ("forward", "backward", "other"))
RECOMPUTED, PARTLY = 2.6, 2.2
"""FLOP of layers' backward passes over those of the forward ones: twice without recomputation, three times with all of it; but
PyTorch stops as soon as it has what the backward pass reads, before a layer's last product: over a quarter of Llama's."""
SEEN = 0.1
"""FLOP of models that aren't trained over those of the forward passes from which a plan's notes name them."""
TOLERANCE = 0.02
"""Relative difference of a model's parameters and a trace's up to which they are one model."""
WIDTHS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float8_e4m3fn": "fp8"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recognised:
    """A trace as a plan."""

    model: Transformer  # what is trained
    plan: Plan  # how it is split
    framework: str  # name in the catalogue
    notes: tuple[str, ...] = ()  # what was taken rather than seen, a sentence each

    __repr__ = brief

    def estimate(self, cluster: Cluster) -> Estimate:
        """What the formulas say of this plan.

        Parameters
        ----------
        cluster : on which
        """
        return estimate(self.model, cluster, self.plan, self.framework)

    def better(self, cluster: Cluster) -> SearchResult:
        """Plans of the same model, batch and software, the fastest first."""
        plan = self.plan
        adapter: dict[str, Any] = {"adapter": plan.adapter, "lora_rank": plan.lora_rank} if plan.adapter != "none" else {}
        return search(
            self.model, cluster, global_batch=plan.global_batch, seq_len=plan.seq_len, framework=self.framework, **adapter
        )


def recognise(trace: Trace, model: Transformer | None = None) -> Recognised:
    """A trace as a plan of the library.

    Parameters
    ----------
    trace : `Trace`
    model : what is trained; the trace's fact ``model``, the text of a ``config.json``, unless given

    Returns
    -------
    Recognised

    Raises
    ------
    NotModelled
        where there is no model, it isn't the trace's, or degrees don't multiply to its world: `price_trace` on other clusters
        answers what-if on the trace itself
    """
    notes: list[str] = []
    known = model if model is not None else _model(trace, notes)
    _check_parameters(trace, known)
    tensor, pipeline, expert = _tensor(trace), _pipeline(trace), _expert(trace)
    data, left = divmod(trace.world_size, tensor * pipeline)
    if left:
        raise NotModelled(
            f"a plan of this trace: {trace.world_size} ranks are no multiple of {tensor} tensor x {pipeline} pipeline ranks"
        )
    stage = _zero_stage(trace, notes)
    framework, assumed = framework_of(trace)
    notes += assumed
    batch = _batches(trace, data)
    first = trace.roles[0]
    fields: dict[str, object] = {
        "tensor_parallel": tensor, "pipeline_parallel": pipeline, "data_parallel": data, "zero_stage": stage,
        "recompute": _recompute(trace, notes), "dtype": _dtype(first), **batch,
    }  # fmt: skip
    if expert > 1:
        fields["expert_parallel"] = expert
    if tensor > 1:
        fields["sequence_parallel"] = _scatters(trace)
    fields |= _adapter(first)
    return Recognised(model=known, plan=Plan(**fields), framework=framework, notes=tuple(notes))  # type: ignore[arg-type]


def _is_of_states(op: str, parameter: str, phase: int) -> bool:
    """Whether a transaction is of weights or gradients rather than of activations."""
    if op in (SEND, RECEIVE, "all-to-all", "barrier"):
        return False
    return bool(parameter) or phase not in (FORWARD, BACKWARD)


def _moves(role: Role) -> list[tuple[str, tuple[int, ...], str, int, int]]:
    """Operation, ranks, parameter, phase and bytes of the last step's transactions of a group."""
    moves, texts = role.transactions, role.texts
    return [
        (
            texts[moves.op[row]], role.groups[moves.group[row]], texts[moves.parameter[row]], int(moves.phase[row]),
            int(moves.bytes[row]),
        )
        for row in role.rows(TRANSACTION, role.step()).tolist()
        if moves.group[row] != NOWHERE and moves.bytes[row] >= LEAST
    ]  # fmt: skip


def _tensor(trace: Trace) -> int:
    """Ranks that exchange activations in every layer."""
    degree = 1
    for role in trace.roles:
        for op, ranks, parameter, phase, _ in _moves(role):
            of_activations = not parameter and phase == FORWARD and op in ("all-reduce", "all-gather", "reduce-scatter")
            if of_activations and even(ranks):
                degree = max(degree, len(ranks))
    return degree


def _expert(trace: Trace) -> int:
    return max((len(ranks) for role in trace.roles for op, ranks, *_ in _moves(role) if op == "all-to-all"), default=1)


def _pipeline(trace: Trace) -> int:
    """Ranks along which activations are sent: the longest chain of messages between roles."""
    place = {rank: number for number, role in enumerate(trace.roles) for rank in role.stands_for}
    joined = list(range(len(trace.roles)))

    def root(one: int) -> int:
        while joined[one] != one:
            one = joined[one]
        return one

    for number, role in enumerate(trace.roles):
        moves = role.transactions
        for op, peer in zip(moves.op.tolist(), moves.peer.tolist(), strict=True):
            if role.texts[op] in (SEND, RECEIVE) and peer in place and place[peer] != number:
                joined[root(number)] = root(place[peer])
    return max(Counter(root(one) for one in range(len(joined))).values())


def _zero_stage(trace: Trace, notes: list[str]) -> int:
    """Which states are sharded, by what is gathered and scattered, and when."""
    told = trace.facts.get("zero_stage")
    if told is not None:
        return int(told)
    role = trace.roles[0]
    found = Counter((op, phase) for op, _, parameter, phase, _ in _moves(role) if _is_of_states(op, parameter, phase))
    if found["all-gather", FORWARD] and found["all-gather", BACKWARD]:
        return 3
    if found["all-gather", FORWARD]:
        notes.append("weights are gathered in the forward pass alone: ZeRO-2, or ZeRO-3 that keeps them")
        return 2
    gathers = any(op == "all-gather" for op, _ in found)
    if not gathers:
        return 0
    notes.append("updated weights are gathered after the step: ZeRO-1 or ZeRO-2, which exchange the same; taken as ZeRO-1")
    return 1


def _batches(trace: Trace, data: int) -> dict[str, object]:
    """Sequences and their length, as the trace says or as its input's shape shows."""
    facts, role = trace.facts, trace.roles[0]
    micro, length = _input(role)
    passes = max(_passes(role), 1)
    micro = int(facts.get("micro_batch", micro))
    return {
        "micro_batch": micro, "seq_len": int(facts.get("seq_len", length)),
        "global_batch": int(facts.get("global_batch", micro * passes * data)),
    }  # fmt: skip


def _input(role: Role) -> tuple[int, int]:
    """Rows and columns of the tokens that a micro-batch brings."""
    storages = role.storages
    shapes = Counter(
        shape
        for row in role.rows(BORN, role.step()).tolist()
        if KINDS[storages.kind[row]] == "input" and len(shape := shape_of(role.texts[storages.shape[row]])) == 2
    )
    if not shapes:
        raise NotModelled("a plan of this trace: no input of sequences x tokens, nor facts micro_batch and seq_len")
    (rows, columns), _ = shapes.most_common(1)[0]
    return rows, columns


def _passes(role: Role) -> int:
    """Forward passes of a step: look-ups of the first embedding."""
    kernels = role.kernels
    lookups = Counter(
        int(kernels.module[row])
        for row in role.rows(KERNEL, role.step()).tolist()
        if kernels.phase[row] == FORWARD and role.texts[kernels.op[row]].replace("::", ".").split(".")[1:2] == ["embedding"]
    )
    return min(lookups.values(), default=1)


def _recompute(trace: Trace, notes: list[str]) -> str:
    flop = _flop_by_phase(trace, layers=True)
    if not flop[FORWARD]:
        flop = _flop_by_phase(trace, layers=False)
    other = flop[OTHER]  # models that run without autograd, and layers of models that are no modules
    forward = flop[FORWARD] or other
    if flop[FORWARD] and other > SEEN * flop[FORWARD]:
        notes.append(
            f"a model that runs without being trained, such as a reference, has {other / forward:.1f} times the FLOP of the "
            f"forward passes: it is in the trace and not in the plan"
        )
    frozen = any(map(_runs_frozen, trace.roles))
    times = flop[BACKWARD] / forward + frozen if forward else 0.0  # of frozen weights there are no products of gradients
    if times > RECOMPUTED:
        return "full"
    if times > PARTLY:
        notes.append(f"backward passes have {times:.1f} times the FLOP of forward ones: a part is recomputed, taken as selective")
        return "selective"
    return "none"


def _flop_by_phase(trace: Trace, layers: bool) -> dict[int, int]:
    """FLOP of the last step's products by phase; of those in layers, which modules number, heads apart, or of all."""
    flop = dict.fromkeys(range(len(PHASES)), 0)
    for role in trace.roles:
        numbered = np.array([not layers or any(map(str.isdigit, text.split("."))) for text in role.texts])
        rows = role.rows(KERNEL, role.step())
        rows = rows[numbered[role.kernels.module[rows]]]
        for phase in flop:
            flop[phase] += int(role.kernels.flop[rows][role.kernels.phase[rows] == phase].sum())
    return flop


def _runs_frozen(role: Role) -> bool:
    """Whether modules run whose parameters aren't trained; averages of weights aren't trained either, but don't run."""
    parameters, texts = role.parameters, role.texts
    rows = role.rows(KERNEL, role.step())
    ran = {texts[module] for module in set(role.kernels.module[rows][role.kernels.phase[rows] == FORWARD].tolist())}
    names = (texts[name] for name in parameters.name[parameters.trainable == 0].tolist())
    return any(name.rpartition(".")[0] in ran for name in names)


def _dtype(role: Role) -> str:
    """The dtype of most products."""
    flop: Counter[str] = Counter()
    for dtypes, count in zip(role.kernels.dtypes.tolist(), role.kernels.flop.tolist(), strict=True):
        for word in dict.fromkeys(role.texts[dtypes].split()):
            flop[word] += count * (word in WIDTHS)
    return WIDTHS[flop.most_common(1)[0][0]] if flop and flop.most_common(1)[0][1] else "bf16"


def _scatters(trace: Trace) -> bool:
    """Whether a tensor group keeps parts of sequences between its products."""
    return any(
        op == "reduce-scatter" and not parameter and phase == FORWARD
        for role in trace.roles
        for op, _, parameter, phase, _ in _moves(role)
    )


def _adapter(role: Role) -> dict[str, object]:
    """Low-rank adapters, as PEFT names their matrices."""
    parameters, kernels, texts = role.parameters, role.kernels, role.texts
    ranks = [
        shape_of(texts[shape])
        for name, shape in zip(parameters.name.tolist(), parameters.shape.tolist(), strict=True)
        if "lora_A" in texts[name]
    ]
    if any(len(shape) < 2 for shape in ranks):  # flat shards, whose products have the rank as the shortest of their sides
        products = np.flatnonzero((kernels.flop > 0) & np.array(["lora_A" in text for text in texts])[kernels.module])
        operands = (texts[shapes].split() for shapes in kernels.shapes[products].tolist())
        ranks = [(min(side for shape in map(shape_of, shapes) for side in shape),) for shapes in operands]
    return {"adapter": "lora", "lora_rank": Counter(shape[0] for shape in ranks).most_common(1)[0][0]} if ranks else {}


def _model(trace: Trace, notes: list[str]) -> Transformer:
    config = trace.facts.get("model")
    if config is None:
        raise NotModelled(
            "a plan of code that doesn't say which model it trains, as transformers' config.json does: say it as model"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(config, encoding="utf-8")
        try:
            reading = huggingface.read(path, trace.facts.get("model_name", "traced"))
        except CostModelError as refused:  # the file is nobody's
            raise NotModelled("the model of the code: " + str(refused).replace(f"{str(path)!r}: ", "")) from refused
    notes += reading.notes
    return reading.model


def _check_parameters(trace: Trace, model: Transformer) -> None:
    """Refuse a model with another number of parameters than the trace's: of all stages, adapters apart."""
    whole: dict[str, int] = {}
    for role in trace.roles:
        parameters = role.parameters
        for name, elements in zip(parameters.name.tolist(), parameters.elements.tolist(), strict=True):
            if "lora_" not in role.texts[name]:
                whole[role.texts[name]] = elements
    found = sum(whole.values())
    shards = {1, *(len(ranks) for role in trace.roles for ranks in role.groups)}  # flat parameters are named as shards
    known = any(abs(found * ranks / float(model.parameters) - 1.0) < TOLERANCE for ranks in shards)
    if found and _tensor(trace) == 1 and not known:
        raise NotModelled(
            f"a plan of this trace: {counted(found, 'parameter')}, and the model {model.name} has {round(model.parameters):,}"
        )
