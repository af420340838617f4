"""Writes a plan as a launch file, and says in it what the framework can't say."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from costmodel.catalogue.asking import ModelLike, model_of
from costmodel.catalogue.changes import differences
from costmodel.catalogue.loader import load_model
from costmodel.catalogue.software import framework_on, load_framework
from costmodel.description.adapters import GROUPS, RANK
from costmodel.description.cluster import Cluster
from costmodel.description.dimensions import WRITTEN
from costmodel.description.fields import table
from costmodel.description.plan import Plan
from costmodel.description.transformer import Transformer
from costmodel.interop.launchers.dialects import DIALECTS
from costmodel.interop.launchers.pricing import Launch, catalogue_name, plan_of
from costmodel.interop.launchers.reading import read_launch
from costmodel.interop.launchers.table import SHARING, Dialect, Writing, about
from costmodel.text.checks import kind
from costmodel.text.errors import InvalidValue, NotModelled
from costmodel.text.units import counted

HELD = tuple(one.field for one in WRITTEN if one.column == "expert" or (one.splits_gpus and one.column != "data"))
"""Degrees without which a plan is another."""
NEEDED = ("seq_len", "global_batch", "micro_batch")
"""Fields that a plan can't be read without."""
OTHERWISE = "_changed"
"""Behind the name of a model of the catalogue that isn't as the catalogue has it."""


def formats() -> list[str]:
    """Names of the dialects that `write_launch` writes."""
    return [dialect.name for dialect in DIALECTS if dialect.written]


def suffix(format: str) -> str:
    """What the name of a launch file ends in.

    Parameters
    ----------
    format : one of `formats`

    Examples
    --------
    >>> suffix("megatron"), suffix("deepspeed")
    ('args', 'json')
    """
    return about(format).layout


def priced_by(format: str) -> str:
    """The software of the catalogue that runs what a launch file says."""
    return _dialect(format).about.software


def write_launch(
    format: str, plan: Plan, model: ModelLike, *, cluster: Cluster | None = None, framework: str | None = None
) -> str:
    """A plan as a launch file.

    Parameters
    ----------
    format : one of `formats`
    plan : what to run
    model : what is trained, or its name
    cluster : on which, for what the framework's defaults there are
    framework : name in the catalogue; ``"deepspeed"`` has a trainer's file say DeepSpeed where it would say FSDP, others are as
        the format has it

    Returns
    -------
    str
        text of the file; what the framework can't say is in comments at its head (in JSON, under ``_comment``), and
        reading the text gives the same plan but for that

    Raises
    ------
    InvalidValue
        where there is no such format
    NotModelled
        where the dialect can't say the degrees of the plan at all

    Examples
    --------
    >>> from costmodel import Plan, load_model
    >>> plan = Plan(global_batch=64, seq_len=4096, tensor_parallel=2, data_parallel=4)
    >>> text = write_launch("megatron", plan, load_model("llama3-8b"))
    >>> "--tensor-model-parallel-size 2" in text.splitlines()
    True
    """
    text, _ = written(format, plan, model, cluster, framework)
    return text


def flags_of(format: str, plan: Plan, model: Transformer, framework: str | None = None) -> dict[str, str]:
    """Every flag that a plan's launch file has, each by its whole name with the line that states it.

    Parameters
    ----------
    format, plan, model, framework : as of `write_launch`
    """
    dialect = _dialect(format)
    lines = {}
    for flag, value in _written(dialect, plan, model, None, framework).values.items():
        if value is None:
            continue
        if dialect.about.layout == "args":
            lines[flag] = _argument(flag, value, dialect)
        else:
            lines[flag] = f"{flag}{' =' if dialect.about.layout == 'toml' else ':'} {json.dumps(value)}"
    return lines


def _dialect(format: str) -> Dialect:
    dialect = next((one for one in DIALECTS if one.name == format), None)
    if dialect is None or not dialect.written:
        raise InvalidValue("format", format, "one of " + ", ".join(formats()))
    return dialect


def _written(dialect: Dialect, plan: Plan, model: Transformer, cluster: Cluster | None, framework: str | None) -> Writing:
    kind("plan", plan, Plan, "Plan(...)")
    kind("model", model, Transformer, "load_model(name)")
    if plan.adapter != "none" and plan.lora_targets == ():
        raise NotModelled("lora_targets='none' in a launch file: a step in which nothing trains is launched by none")
    name = framework if framework in SHARING and dialect.about.software == "hf-fsdp" else dialect.about.software
    software = framework_on(cluster, name) if cluster else load_framework(name)
    if plan.loss is None and not plan.fused_cross_entropy:
        plan = dataclasses.replace(plan, loss=dialect.about.loss)
    if _unlike(model):
        model = dataclasses.replace(model, name=f"{model.name}{OTHERWISE}")
    writing = Writing(dialect, (plan.on(cluster) if cluster else plan).resolve(software), model, name)
    writing.fill()
    return writing


def _unlike(model: Transformer) -> str:
    """In what a model isn't the catalogue's of its name, in words; empty where it is, or none has that name."""
    named = catalogue_name(model.name)
    return ", ".join(map(str, differences(load_model(named), model))) if named else ""


def written(
    format: str, plan: Plan, model: ModelLike, cluster: Cluster | None, framework: str | None = None
) -> tuple[str, list[str]]:
    """The text of a plan, and the fields that it doesn't say."""
    dialect, model = _dialect(format), model_of(model)
    writing = _written(dialect, plan, model, cluster, framework)
    resolved = writing.plan
    lost = _lost(emit(dialect, writing.values, []), writing)
    notes = [f"{dialect.about.framework} can't say {field}={getattr(resolved, field)!r}" for field in lost]
    if any(OTHERWISE in str(value).lower() for value in writing.values.values()):
        notes.append(f"{dialect.about.framework} can't say {_unlike(model)} of {model.name}: {writing.model.name} stands for a "
                     "model of your own")  # fmt: skip
    if model.recurrent_layers:
        notes.append(f"no option here says that {model.recurrent_layers} of {model.layers} layers keep a state: add it yourself")
    steps = counted(resolved.micro_batches, "micro-batch", "micro-batches")
    head = [f"{model.name}: {counted(resolved.gpus, 'GPU')}, {steps} a step and copy", *notes]
    per_node, nodes = nodes_of(resolved.gpus, cluster)
    opening = [word.format(per_node=per_node, nodes=nodes) for word in dialect.about.opening]
    return emit(dialect, writing.values, head, opening), lost


def _lost(text: str, writing: Writing) -> list[str]:
    """Fields that reading a text back doesn't give, with the values that it would need."""
    dialect, plan = writing.dialect, writing.plan
    launch = read_launch(text if "\n" in text else text + "\n", gpus=plan.gpus, dialect=dialect.name)
    degrees = {field: launch.plan_fields.get(field) or 1 for field in HELD}
    degrees["context_parallel"] = max(degrees["context_parallel"], launch.plan_fields.get("ulysses_parallel") or 1)
    for field, degree in degrees.items():
        if degree != getattr(plan, field):
            raise NotModelled(f"{dialect.about.framework} can't say {field}={getattr(plan, field)}")
    lost = [field for field in NEEDED if launch.plan_fields.get(field) is None]
    if lost:
        values = {field: str(getattr(plan, field)) for field in lost}
        launch = read_launch(text, gpus=plan.gpus, dialect=dialect.name, settings=values)
    back = _with_adapters(read_back(launch, plan.gpus).resolve(load_framework(writing.software)))
    plan = _with_adapters(plan)
    return [
        name
        for name, row in table(Plan).items()
        if getattr(plan, row.idle, 2) > 1 and (name in lost or _differ(getattr(back, name), getattr(plan, name)))
    ]


def _with_adapters(plan: Plan) -> Plan:
    """A plan with the rank and the matrices that it means where it leaves them open."""
    if plan.adapter == "none":
        return plan
    return dataclasses.replace(plan, lora_rank=plan.lora_rank or RANK, lora_targets=plan.lora_targets or GROUPS["all"])


def _differ(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) > 1e-6
    return bool((tuple(one) if isinstance(one, list) else one) != (tuple(other) if isinstance(other, list) else other))


def read_back(launch: Launch, gpus: int) -> Plan:
    """The plan of a launch that `write_launch` wrote, without its model.

    Raises
    ------
    CostModelError
        where it conflicts: the dialect can't say such a plan
    """
    if launch.conflicts:
        raise NotModelled(f"{launch.framework} can't say this plan: {'; '.join(launch.conflicts)}")
    return plan_of(launch, gpus, [])


# Layouts


def emit(dialect: Dialect, values: Mapping[str, object], comments: Sequence[str], opening: Sequence[str] = ()) -> str:
    """Flags and values in the layout of a dialect, after comments and the words that open a command line."""
    head = "".join(f"# {_in_line(comment)}\n" for comment in comments) + "".join(f"{line}\n" for line in opening)
    if dialect.about.layout == "args":
        return head + "".join(f"{_argument(flag, value, dialect)}\n" for flag, value in values.items() if value is not None)
    tree = _nested(values)
    if dialect.about.layout == "json":
        return json.dumps(({"_comment": list(comments)} if comments else {}) | tree, indent=2) + "\n"
    if dialect.about.layout == "toml":
        return head + _toml(tree)
    import yaml

    return head + yaml.safe_dump(tree, sort_keys=False, default_flow_style=False)


def _in_line(comment: str) -> str:
    """A comment that ends with its line, whatever it holds."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in comment)


def _argument(flag: str, value: object, dialect: Dialect) -> str:
    if "." in flag and dialect.about.assigns:
        return f"{flag}={_quoted(value)}"
    name = f"--{flag.replace('_', '-') if dialect.about.dashes else flag}"
    if value is True:
        return name
    return f"{name} {' '.join(map(_quoted, value)) if isinstance(value, list | tuple) else _quoted(value)}"


def _quoted(value: object) -> str:
    """A value of a command line; of a text what a shell would not take for itself is quoted."""
    return shlex.quote(_in_line(value)) if isinstance(value, str) else str(value)


def _nested(values: Mapping[str, object]) -> dict[str, object]:
    tree: dict[str, object] = {}
    for path, value in values.items():
        if value is None:
            continue
        *sections, leaf = path.split(".")
        node = tree
        for section in sections:
            inner = node.setdefault(section, {})
            assert isinstance(inner, dict), f"{section} is a section and a value"
            node = inner
        node[leaf] = value
    return tree


def _toml(tree: Mapping[str, object], prefix: str = "") -> str:
    """TOML of tables of plain values; strings, numbers and flags are written as JSON writes them."""
    plain = {key: value for key, value in tree.items() if not isinstance(value, dict)}
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in plain.items())
    text = f"[{prefix}]\n{text}\n" if prefix and plain else text
    return text + "".join(
        _toml(value, f"{prefix}.{key}" if prefix else key)
        for key, value in tree.items()
        if isinstance(value, dict)
    )


# Sweeps

PER_NODE = 8
"""GPUs of a node, where no cluster says."""


def write_sweep(
    format: str,
    plans: Sequence[Plan],
    model: Transformer,
    folder: str | Path,
    *,
    cluster: Cluster | None = None,
) -> list[str]:
    """Plans as files in a folder, with a line to run each.

    Parameters
    ----------
    format, model, cluster : as of `write_launch`
    plans : the best first
    folder : created if it isn't there; files that a sweep wrote before are replaced

    Returns
    -------
    list of str
        the lines, which are also in the folder's ``run.sh``
    """
    if not plans:
        raise InvalidValue("plans", plans, "at least one plan")
    texts = [write_launch(format, plan, model, cluster=cluster) for plan in plans]
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (plan, text) in enumerate(zip(plans, texts, strict=True), 1):
        file = place / f"plan-{number:03d}.{suffix(format)}"
        file.write_text(text, encoding="utf-8")
        lines.append(runner(format, plan, file.name, cluster))
    (place / "run.sh").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return lines


def runner(format: str, plan: Plan, file: str, cluster: Cluster | None = None) -> str:
    """The line that starts a run of a written file.

    Parameters
    ----------
    format : one of `formats`
    plan : which the file says
    file : its name
    cluster : for the GPUs of a node; 8 if not given

    Returns
    -------
    str
        a line for a shell
    """
    per_node, nodes = nodes_of(plan.gpus, cluster)
    return about(format).runner.format(file=shlex.quote(file), per_node=per_node, nodes=nodes, gpus=plan.gpus)


def nodes_of(gpus: int, cluster: Cluster | None) -> tuple[int, int]:
    """GPUs of a node, and nodes; of one GPU each where they don't fill whole nodes."""
    per_node = min(gpus, cluster.gpus_per_node if cluster else PER_NODE)
    return (per_node, gpus // per_node) if gpus % per_node == 0 else (1, gpus)
