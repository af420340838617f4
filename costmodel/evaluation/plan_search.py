"""Every legal plan of a model on a cluster, evaluated and ranked."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from costmodel.catalogue.software import ask
from costmodel.checks import listing, positive_int, whole
from costmodel.description.cluster import Cluster
from costmodel.description.framework import Framework
from costmodel.description.plan import COMPRESSION_PARAMETERS, MOST, Plan, divisors, plan_numbers
from costmodel.description.transformer import Transformer
from costmodel.errors import IllegalPlan, InvalidValue
from costmodel.evaluation import engine as engines
from costmodel.evaluation.error_model import spread_of
from costmodel.evaluation.estimation import FIT_PROBABILITY, Estimate, probability
from costmodel.evaluation.ranking import Standings, standings
from costmodel.formulas import legality
from costmodel.formulas.pipeline.schedules import CODES, INTERLEAVED, ONE_F_ONE_B, SCHEDULES
from costmodel.formulas.quantities import PlanNumbers

if TYPE_CHECKING:
    import pandas
    import polars

    from costmodel.studies.partitioning import StageSplit

SPLIT = (
    "tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel", "expert_tensor_parallel",
    "virtual_stages", "micro_batch", "zero_stage", "shard_group", "recompute", "sequence_parallel", "schedule",
)  # fmt: skip
"""Dimensions of a search that become columns."""
CHOICES = (
    "dtype", "adapter", "attention", "optimizer", "gradient_bytes", "fused_cross_entropy", "fused_norms", "cuda_graphs",
    "overlap_gradients", "overlap_parameters", "overlap_tensor", "overlap_pipeline", "optimizer_offload", "activation_offload",
    "rank_order", "synchronisation", "servers", "local_steps", "compression", *COMPRESSION_PARAMETERS,
)  # fmt: skip
"""Dimensions that are the same for a whole batch of columns."""
Found = tuple[float, float, dict[str, Any], int, np.ndarray]
"""Seconds, bytes, choices, row of the table, and parts of one evaluated plan."""
LARGEST_MICRO_BATCH = 16
NEAR = 1.5
"""Times the memory there is that a plan may need to be named as a miss: beyond that no small change makes it fit."""
LARGEST_SEARCH = 50_000_000


def _values(name: str, given: Any) -> list[Any] | None:
    """The values to try: None for all, one value, or a list of them."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        return [given]
    values = list(given)
    if isinstance(given, Mapping) or None in values:
        raise InvalidValue(name, given, "a value or a list of values")
    if not values:
        raise InvalidValue(name, values, "a value or a list that is not empty")
    return values


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Parameters
    ----------
    considered : combinations enumerated
    evaluated : legal plans evaluated
    rejected : how many combinations broke which rule first
    ranked : the fastest plans that fit, fastest first
    closest_miss : the fastest plan that needs up to half more memory than there is, where it is faster than all that fit;
        where none fits, the leanest
    """

    model: Transformer
    cluster: Cluster
    framework: Framework
    considered: int
    evaluated: int
    fitting: int
    rejected: dict[str, int]
    ranked: list[Estimate]
    closest_miss: Estimate | None

    @property
    def best(self) -> Estimate:
        """The fastest plan that fits; IllegalPlan where none does."""
        if not self.ranked:
            raise IllegalPlan("none", self.why_none())
        return self.ranked[0]

    def why_none(self) -> str:
        """One line about why nothing fits."""
        if self.evaluated == 0:
            counts = ", ".join(f"{reason} {count}" for reason, count in self.rejected.items()) or (
                "the degrees asked for don't multiply to the GPUs"
            )
            return f"no legal plan for {self.model.name} on {self.cluster.gpus} x {self.cluster.name}: {counts}"
        assert self.closest_miss is not None
        return (
            f"no plan of {self.evaluated} fits {self.model.name} on {self.cluster.gpus} x {self.cluster.name}; "
            f"the leanest needs {self.excess_bytes / 2**30:.1f} GiB more than a GPU has for it"
        )

    @property
    def excess_bytes(self) -> float:
        """Bytes by which `closest_miss` doesn't fit; 0 where there is none."""
        return -self.closest_miss.memory_margin if self.closest_miss else 0.0

    def ties(self) -> list[Estimate]:
        """Ranked plans that can't be told from the first, itself included."""
        return [plan for plan, standing in zip(self.ranked, self.standings.plans, strict=True) if standing.tied]

    @functools.cached_property
    def standings(self) -> Standings:
        """How sure the ranking is: for each ranked plan the probability that it is the fastest, and its regret."""
        return standings(self.ranked)

    def uneven_split(self, place: int = 0) -> StageSplit | None:
        """The split of layers over stages that makes a ranked plan's slowest stage fastest; None without a pipeline.

        Ranked plans have equal shares of the layers, but for what the ends lack; embedding, head and dense layers weigh
        unlike a layer, so that unequal shares can be faster: by `StageSplit.gain` where no bubble counts.

        Parameters
        ----------
        place : in the ranking, from 0

        Raises
        ------
        InvalidValue
            where there is no such place
        """
        from costmodel.studies.partitioning import balanced_stages

        whole("place", place, max(len(self.ranked) - 1, 0))
        plan = self.ranked[place] if self.ranked else self.best
        if plan.plan.pipeline_parallel == 1:
            return None
        return balanced_stages(plan.model, plan.cluster, plan.plan, plan.framework)

    @property
    def corrected_step_time(self) -> float:
        """Step time to expect of the best plan [s]: its estimate, less flattered for having been chosen by it."""
        return self.best.step_time * math.exp(self.standings.optimism)

    def to_rows(self) -> list[dict[str, Any]]:
        """One dictionary a ranked plan, with units in the names."""
        return [
            {
                "rank": i + 1, "tied": standing.tied, "probability_fastest": standing.probability_fastest,
                "expected_regret": standing.expected_regret, "step_time_low_s": plan.time_interval[0],
                "step_time_high_s": plan.time_interval[1], **plan.to_dict(),
            }
            for i, (plan, standing) in enumerate(zip(self.ranked, self.standings.plans, strict=True))
        ]  # fmt: skip

    def to_pandas(self) -> pandas.DataFrame:
        """The ranked plans as a pandas frame (extra ``frame``)."""
        import pandas

        return pandas.DataFrame(self.to_rows())

    def to_polars(self) -> polars.DataFrame:
        """The ranked plans as a polars frame (extra ``frame``)."""
        import polars

        return polars.DataFrame(self.to_rows(), infer_schema_length=None)

    def to_json(self, path: str | Path | None = None) -> str:
        """Counts and ranked plans as JSON; written to `path` if given."""
        document = {
            "considered": self.considered, "evaluated": self.evaluated, "fitting": self.fitting,
            "rejected": self.rejected, "plans": self.to_rows(),
            "closest_miss": self.closest_miss.to_dict() if self.closest_miss else None,
        }  # fmt: skip
        text = json.dumps(document, allow_nan=False)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_csv(self, path: str | Path | None = None) -> str:
        """Ranked plans as CSV; written to `path` if given."""
        import csv
        import io

        rows = self.to_rows()
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(rows[0]) if rows else ["rank"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        if path is not None:
            Path(path).write_text(buffer.getvalue(), encoding="utf-8")
        return buffer.getvalue()


@dataclasses.dataclass(frozen=True)
class Space:
    """What is tried along each dimension: given values, or None for all that make sense."""

    model: Transformer
    cluster: Cluster
    framework: Framework
    global_batch: int
    seq_len: int
    given: dict[str, list[Any] | None]

    def degrees(self, name: str, most: int) -> list[int]:
        """Values of a parallel degree: what was given, or every divisor of the GPUs up to `most`."""
        gpus = int(self.cluster.gpus or 1)
        values = self.given[name]
        if values is None:
            return divisors(gpus, most)
        for value in values:
            positive_int(name, value, MOST)
        return values

    def splits(self) -> Iterator[tuple[int, int, int, int]]:
        """Tensor, context, pipeline and data degrees whose product is the GPUs."""
        gpus = int(self.cluster.gpus or 1)
        wanted = self.given["data_parallel"]
        context = self.degrees("context_parallel", gpus) if self.given["context_parallel"] else [
            degree for degree in divisors(gpus, max(1, self.seq_len // 2048))
        ]  # fmt: skip
        for t, c, p in itertools.product(
            self.degrees("tensor_parallel", self.model.heads), context, self.degrees("pipeline_parallel", self.model.layers)
        ):
            if gpus % (t * c * p) == 0 and (wanted is None or gpus // (t * c * p) in wanted):
                yield t, c, p, gpus // (t * c * p)

    def chunks(self, stages: int) -> tuple[int, ...]:
        """Virtual stages: what was given, or every number that splits a stage's layers evenly."""
        values = self.given["virtual_stages"]
        if values is None:
            schedules = self.given["schedule"]
            if stages == 1 or (schedules is not None and not any(SCHEDULES[name].chunked for name in schedules)):
                return (1,)
            return tuple(divisors(-(-self.model.layers // stages), 8))
        for value in values:
            positive_int("virtual_stages", value, MOST)
        return tuple(values)

    def micro_batches(self, data: int) -> tuple[int, ...]:
        """Micro-batch sizes: what was given, or powers of two that divide a rank's share."""
        values = self.given["micro_batch"]
        if values is None:
            share = self.global_batch // data
            sizes = (2**k for k in range(LARGEST_MICRO_BATCH.bit_length()))
            return tuple(size for size in sizes if share >= size and share % size == 0) or (1,)
        for value in values:
            positive_int("micro_batch", value, MOST)
        return tuple(values)

    def experts(self, ranks: int) -> tuple[tuple[int, int], ...]:
        """Expert and expert-tensor degrees."""
        tensor = self.given["expert_tensor_parallel"] or [1]
        expert = self.given["expert_parallel"]
        if expert is None:
            expert = divisors(self.model.experts, ranks) if self.model.experts else [1]
            expert = [degree for degree in expert if ranks % degree == 0]
        return tuple(itertools.product(expert, tensor))


def _rows(space: Space) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Every combination as columns, and the codes of recompute and schedule that made them."""
    given, framework = space.given, space.framework
    recompute = given["recompute"] or (["none", "full"] if framework.attention == "flash" else ["none", "selective", "full"])
    stages = given["zero_stage"] or list(framework.zero_stages)
    schedules = [CODES[name] for name in given["schedule"] or []]
    groups = [float(group) for group in given["shard_group"] or [0]]
    grids: dict[Any, np.ndarray] = {}
    parts: list[np.ndarray] = []
    count = 0
    for t, c, p, d in space.splits():
        wanted = given["sequence_parallel"] or [framework.sequence_parallel]
        parallel = tuple(dict.fromkeys(float(bool(value) and t > 1) for value in wanted))
        key = (space.experts(t * c * d), space.chunks(p), space.micro_batches(d), parallel)
        grid = grids.get(key)
        if grid is None:
            pairs = [
                (v, schedule) for v in key[1]
                for schedule in ([INTERLEAVED if v > 1 else ONE_F_ONE_B] if given["schedule"] is None else schedules)
            ]  # fmt: skip
            combinations = itertools.product(key[0], pairs, key[2], stages, range(len(recompute)), parallel, groups)
            rows = [(e, et, v, s, b, z, r, sp, g) for (e, et), (v, s), b, z, r, sp, g in combinations]
            grid = grids[key] = np.array(rows, dtype=float).reshape(-1, 9)
        part = np.empty((len(grid), 13))
        part[:, :4] = t, c, p, d
        part[:, 4:] = grid
        parts.append(part)
        count += len(grid)
        if count > LARGEST_SEARCH:
            raise InvalidValue("search", f"more than {LARGEST_SEARCH} combinations", "fewer values along some dimension")
    table = np.concatenate(parts).T if parts else np.empty((13, 0))
    table[12] = np.where(table[12] == 0.0, table[1] * table[3], table[12])
    names = ("tensor", "context", "pipeline", "data", "expert", "expert_tensor", "virtual_stages", "schedule",
             "micro_batch", "zero_stage", "recompute", "sequence_parallel", "shard_group")  # fmt: skip
    return dict(zip(names, table, strict=True)), np.array(recompute, dtype=object)


def search(
    model: Transformer,
    cluster: Cluster,
    *,
    global_batch: int,
    seq_len: int,
    framework: Framework | str = "megatron-core",
    fit_probability: float = FIT_PROBABILITY,
    top: int = 20,
    engine: str = "auto",
    progress: Callable[[int, int], None] | None = None,
    **dimensions: Any,
) -> SearchResult:
    """Evaluate every legal plan and rank those that fit.

    Parameters
    ----------
    model, cluster : what is trained, on what
    global_batch : sequences per step
    seq_len : [tokens]
    framework : the software, or its name in the catalogue
    fit_probability : to fit in memory, from which a plan is ranked
    top : how many ranked plans to return
    engine : ``"auto"``, ``"python"``, ``"numpy"`` or ``"numba"``
    progress : called with the combinations just done and those in all, from any thread
    dimensions : any field of `Plan`, fixed to a value or tried over a list. Left out: degrees try every divisor of
        the GPUs, virtual stages every even split up to 8, micro-batch the powers of two up to 16, recompute none and
        full (and selective where attention is not flash), ZeRO every stage the framework has; all else is the
        framework's default.

    Returns
    -------
    SearchResult

    Raises
    ------
    InvalidValue
        for an unknown dimension or a bad value
    """
    question = ask(model, cluster, framework)
    software = question.framework
    positive_int("top", top, 1_000_000)
    probability("fit_probability", fit_probability)
    if progress is not None and not callable(progress):
        raise InvalidValue("progress", progress, "a function of the plans done and of all")
    known = (*SPLIT, "data_parallel", *CHOICES)
    for name in dimensions:
        if name not in known:
            raise InvalidValue("dimension", name, "one of " + ", ".join(known))
    order = dimensions.get("rank_order")
    if order is not None:
        listing("rank_order", order)
    if order and isinstance(order[0], str):
        dimensions = {**dimensions, "rank_order": [tuple(order)]}
    given = {name: _values(name, dimensions.get(name)) for name in known}
    template = Plan(global_batch=global_batch, seq_len=seq_len)
    for name in ("data_parallel", "zero_stage", "schedule", "recompute", "sequence_parallel", "shard_group", "expert_parallel",
                 "expert_tensor_parallel"):  # fmt: skip
        for value in given[name] or []:
            dataclasses.replace(template, **{name: value})
    for value in given["servers"] or []:
        dataclasses.replace(template, synchronisation="parameter-server", servers=value)
    for value in given["local_steps"] or []:
        dataclasses.replace(template, synchronisation="local-sgd", local_steps=value)
    for name in ("synchronisation", "compression"):
        for value in given[name] or []:
            dataclasses.replace(template, **{name: value})
    for name, owner in COMPRESSION_PARAMETERS.items():
        kinds = given["compression"] or ["none"]
        for value in given[name] or []:  # refused where no way to compress that is tried has it
            dataclasses.replace(template, compression=owner if owner in kinds else kinds[0], **{name: value})

    space = Space(model, cluster, software, global_batch, seq_len, given)
    table, recompute = _rows(space)
    considered = len(table["tensor"])
    rejected: dict[str, int] = {}
    best: list[Found] = []
    misses: list[Found] = []
    evaluated = fitting = 0
    combinations = _choices(given)
    for chosen in combinations:
        try:
            sample = dataclasses.replace(template, **chosen)
        except InvalidValue as refused:
            if len(combinations) == 1 or not {"servers", "local_steps", "compression"} & set(chosen):
                raise
            reason = "compression" if refused.field == "compression" else "synchronisation"  # servers where there are none
            rejected[reason] = rejected.get(reason, 0) + considered
            continue
        columns = _columns(table, recompute, model, sample.rank_order)
        settings = sample.settings(software)
        legal = _legal(model, settings, columns, table, software, float(cluster.gpus or 1), rejected)
        question.device(sample.dtype)  # refused where the device has no such dtype
        if not len(legal):
            continue
        plans = np.array([np.broadcast_to(column, considered)[legal] for column in columns])
        report = None
        if progress:
            whole = considered * len(combinations)
            progress(considered - len(legal), whole)
            report = functools.partial(_pass_on, progress, whole)
        parts = engines.evaluate(question.inputs(sample), plans, engine, report)
        times, held = parts[0], parts[engines.PARTS.index("memory_total")]
        spread = spread_of(software, cluster.device, bool(model.experts))
        limit = spread.margin(fit_probability) * float(cluster.device.usable_memory or 0.0)
        fits = held <= limit
        evaluated += len(legal)
        fitting += int(fits.sum())
        inside = np.flatnonzero(fits)
        for row in inside[np.argsort(times[inside], kind="stable")[:top]]:
            best.append((float(times[row]), float(held[row]), chosen, int(legal[row]), parts[:, row].copy()))
        outside = np.flatnonzero(~fits)
        near = outside[held[outside] <= NEAR * limit]
        if len(near) or (len(outside) and not len(inside)):
            row = near[np.argmin(times[near])] if len(inside) else outside[np.argmin(held[outside])]
            misses.append((float(times[row]), float(held[row]), chosen, int(legal[row]), parts[:, row].copy()))
    best.sort(key=lambda item: item[0])

    def rebuild(found: Found) -> Estimate:
        _, _, chosen, row, parts = found
        plan = _plan(table, recompute, row, template, chosen).resolve(software)
        return Estimate(
            question=question, plan=plan, step=engines.unflatten(parts), required_probability=fit_probability
        )

    ranked = [rebuild(found) for found in best[:top]]
    miss = None
    if misses:
        found = min(misses, key=lambda item: item[0] if ranked else item[1])
        if not ranked or found[0] < ranked[0].step_time:
            miss = rebuild(found)
    return SearchResult(
        model, cluster, software, considered * len(combinations), evaluated, fitting, rejected, ranked, miss
    )


def _choices(given: dict[str, list[Any] | None]) -> list[dict[str, Any]]:
    """Combinations of what is the same for a whole batch of columns; what a way to compress doesn't use is left out."""
    found = []
    for combination in itertools.product(*(given[name] or [None] for name in CHOICES)):
        chosen = {name: value for name, value in zip(CHOICES, combination, strict=True) if value is not None}
        for name, owner in COMPRESSION_PARAMETERS.items():
            if chosen.get("compression") != owner:
                chosen.pop(name, None)
        if chosen not in found:
            found.append(chosen)
    return found


def _pass_on(progress: Callable[[int, int], None], whole: int, done: int) -> None:
    progress(done, whole)


def _columns(table: dict[str, np.ndarray], recompute: np.ndarray, model: Transformer, order: Sequence[str]) -> PlanNumbers:
    """The table as the columns that formulas take."""
    share = np.array([
        1.0 if kind == "full" else 0.0 if isinstance(kind, str) else -(-model.layers // kind) / model.layers
        for kind in recompute
    ])  # fmt: skip
    selective = np.array([float(kind == "selective") for kind in recompute])
    code = table["recompute"].astype(int)
    kept = {name: column for name, column in table.items() if name != "recompute"}
    return plan_numbers(**kept, recompute_layers=share[code], recompute_attention=selective[code], rank_order=order)


def _legal(
    model: Transformer, settings: Any, columns: PlanNumbers, table: dict[str, np.ndarray], framework: Framework,
    gpus: float, rejected: dict[str, int],
) -> np.ndarray:  # fmt: skip
    """Indices of the legal rows; adds to `rejected` the first rule that each other row breaks."""
    open_rows = np.ones(len(table["tensor"]), dtype=bool)
    piped = (table["pipeline"] > 1) & (table["zero_stage"] > framework.largest_pipelined_zero_stage)
    unsupported = ~np.isin(table["zero_stage"], framework.zero_stages)
    broken = legality.violations(model.numbers(), settings, columns, gpus)
    for reason, values in {"zero_stage": unsupported, "zero_pipeline": piped, **broken._asdict()}.items():
        hit = open_rows & (np.broadcast_to(values, open_rows.shape) > 0)
        count = int(hit.sum())
        if count:
            rejected[reason] = rejected.get(reason, 0) + count
            open_rows &= ~hit
    return np.flatnonzero(open_rows)


def _plan(
    table: dict[str, np.ndarray], recompute: np.ndarray, row: int, template: Plan, chosen: dict[str, Any]
) -> Plan:
    """One row of the table as a `Plan`."""
    value = {name: int(column[row]) for name, column in table.items() if name != "schedule"}
    codes = {code: name for name, code in CODES.items()}
    whole = value["shard_group"] == value["data"] * value["context"]
    return dataclasses.replace(
        template, **chosen,
        tensor_parallel=value["tensor"], context_parallel=value["context"], pipeline_parallel=value["pipeline"],
        data_parallel=value["data"], expert_parallel=value["expert"], expert_tensor_parallel=value["expert_tensor"],
        virtual_stages=value["virtual_stages"], schedule=codes[float(table["schedule"][row])],
        micro_batch=value["micro_batch"], zero_stage=value["zero_stage"], recompute=recompute[value["recompute"]],
        sequence_parallel=bool(value["sequence_parallel"]), shard_group=None if whole else value["shard_group"],
    )  # fmt: skip


__all__ = ["CHOICES", "SPLIT", "SearchResult", "search"]
