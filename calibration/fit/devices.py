"""Constants of devices from the operators measured on them, and the pooled relation for devices that were not measured.

Each device is fitted twice: around what is believed of any device, then around what the others say of one of its
architecture. The relation is a nested mean of logarithms: of all devices, of those with one way to feed the tensor cores,
of one generation, of one device; each level counts as far as the spread within it allows.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

import costmodel
from calibration.data.micro import REPEATED, SERVING, TRAINING, Array, Sweep
from calibration.fit import operator_times
from costmodel.arithmetic.named_tuples import changed, made
from costmodel.description.device import Device, Efficiency
from costmodel.evaluation.own_runs_fit import UnknownConstant, fit

PRIORS = {
    "cast": (0.75, 0.3, 0.05, 1.0), "cache": (0.7, 0.3, 0.1, 1.0), "cache_bandwidth": (5e12, 0.3, 2e11, 5e13),
    "kernel_time": (2e-6, 0.4, 3e-7, 2e-5),
    "gemm": (0.7, 0.3, 0.02, 1.0), "gemm_output": (2e-10, 1.0, 1e-12, 1e-8), "gemm_depth": (200.0, 1.0, 5.0, 1e4),
    "product_memory": (0.75, 0.2, 0.2, 1.0),
    "grouped": (0.5, 0.4, 0.01, 1.0), "grouped_rows": (30.0, 1.0, 0.5, 512.0), "grouped_output": (5e-10, 1.0, 1e-12, 1e-8),
    "grouped_memory": (0.87, 0.1, 0.3, 1.0), "memory": (0.85, 0.1, 0.3, 0.97),
    "attention_forward": (0.65, 0.3, 0.02, 1.0), "attention_backward": (0.5, 0.3, 0.02, 1.0),
    "attention_length": (500.0, 0.7, 10.0, 5e3),
    "attention_window": (200.0, 0.7, 5.0, 5e3), "attention_width": (40.0, 0.7, 1.0, 500.0),
    "attention_rows": (6e3, 0.7, 1e2, 1e6), "attention_unaligned": (0.9, 0.7, 0.05, 1.0),
    "full_attention": (0.65, 0.3, 0.02, 1.0), "full_attention_length": (300.0, 0.7, 10.0, 5e3),
    "full_attention_width": (40.0, 0.7, 0.1, 500.0),
    "overhead": (5e-6, 1.0, 1e-8, 1e-4), "traffic": (1.0, 0.5, 0.05, 20.0), "spread": (0.9, 2.0, 1e-3, 1.2),
    "slowdown": (1.0, 0.5, 0.3, 5.0), "lost": (1.5, 0.5, 0.3, 10.0), "floor": (5e-5, 1.0, 1e-6, 1e-3),
    "kept": (0.1, 1.5, 1e-4, 1.0),
}  # fmt: skip
"""Before any device is measured: value, spread of its logarithm, bounds."""
BY_KIND = {
    "cast": (("cast", "cache", "cache_bandwidth", "kernel_time"), ()),
    "product": (("product_memory",), ("gemm", "gemm_output", "gemm_depth")),
    "grouped product": (("grouped_memory",), ("grouped", "grouped_rows", "grouped_output")),
    "attention": (("attention_length", "attention_window", "attention_width", "attention_rows", "attention_forward",
                   "attention_unaligned", "full_attention", "full_attention_length", "full_attention_width"), ()),
    "attention backward": (("attention_backward",), ()),
    "stream": (("memory",), ()),
}  # fmt: skip
"""Constants that each kind of operator identifies, of a device and of it at each dtype, in the order they are fitted."""
COLLECTOR = {
    "cast": (), "product": ("overhead", "slowdown", "kept"), "attention": ("overhead", "slowdown", "lost", "floor"),
    "attention backward": (), "stream": (),
    "grouped product": ("overhead", "traffic", "spread", "slowdown"),
}  # fmt: skip
"""Constants of the collector that each kind identifies beside them."""
TOGETHER = (("cast",), ("product",), ("grouped product",), ("attention", "attention backward"), ("stream",))
"""Kinds that share constants are fitted at once."""
WITHOUT_WINDOW = ("attention_window",)
SAME_UNITS = {"fp16": "bf16"}
"""Dtypes whose products run on the units of another, at its rate."""
GENERATIONS = {
    "volta": "volta", "turing": "turing", "ampere": "ampere", "ada": "ada", "hopper": "hopper", "blackwell": "blackwell",
    "blackwell-ultra": "blackwell", "blackwell-rtx": "blackwell-rtx",
}  # fmt: skip
"""Architectures whose multiprocessors are of one design."""
ASYNCHRONOUS = ("hopper", "blackwell")
"""Generations whose tensor cores read shared or tensor memory by themselves; the others are fed by registers."""
LEAST_SPREAD = {"device": 0.05, "generation": 0.1, "family": 0.1}
"""Spread of a constant's logarithm at each level that few devices can't argue away."""
ROWS_THAT_COUNT = 200.0
"""Of a sweep; more rows of it weigh no more."""
ITERATIONS = 200
NOISE = 0.02
"""Log error beyond which a row counts linearly: medians are what is judged."""
SMALL, SMALL_WEIGHT = 1e9, 0.3
"""Products of fewer FLOP show their launch; what they weigh beside larger ones."""

Values = dict[str, float]
Prior = tuple[float, float, float, float]


@dataclasses.dataclass(frozen=True)
class Fitted:
    """Constants of a device."""

    values: Values  # by key, as ``"gemm.bf16"``, ``"memory"`` or ``"product fp8/overhead"``
    errors: Values  # standard error of each value's logarithm
    own: frozenset[str]  # keys that the device's own operators told; the others are the relation's
    files: tuple[str, ...]  # that they come from


def family_of(generation: str) -> str:
    """How a generation feeds its tensor cores.

    Examples
    --------
    >>> family_of("hopper"), family_of("ampere")
    ('asynchronous', 'synchronous')
    """
    return "asynchronous" if generation in ASYNCHRONOUS else "synchronous"


def field_of(key: str) -> str:
    """Name of the constant that a key holds.

    Examples
    --------
    >>> field_of("gemm.bf16"), field_of("product fp8/overhead")
    ('gemm', 'overhead')
    """
    return key.rsplit("/", 1)[-1] if "/" in key else key.split(".", 1)[0]


def best_shares(sweeps: Sequence[Sweep]) -> Values:
    """Best rate of a product over the dense peak, by ``"best.<dtype>"``: what bounds every fitted rate."""
    found: Values = {}
    for sweep in sweeps:
        if sweep.kind == "product":
            peak = costmodel.load_device(sweep.device).peak(sweep.dtype)
            reached = float(np.max(sweep.flop() / sweep.seconds) / peak)
            key = f"best.{SAME_UNITS.get(sweep.dtype, sweep.dtype)}"
            found[key] = max(reached, found.get(key, 0.0))
    return found


def efficiency_of(values: Mapping[str, float], default: Efficiency) -> Efficiency:
    """Constants as a device takes them; those that the values lack are the default's."""
    changes: dict[str, object] = {}
    for field in dataclasses.fields(Efficiency):
        by_dtype = {key.split(".", 1)[1]: value for key, value in values.items() if key.startswith(f"{field.name}.")}
        if by_dtype:
            known = getattr(default, field.name)
            changes[field.name] = {**known, **by_dtype} if isinstance(known, Mapping) else by_dtype
        elif field.name in values:
            changes[field.name] = values[field.name]
    return changed(default, changes)


def default_efficiency() -> Efficiency:
    """What is believed of any device, in a benchmark's short burst."""
    given = {name: value for name, (value, *_) in PRIORS.items() if name in Efficiency.__dataclass_fields__}
    by_dtype = {name: {"bf16": given[name]} for name in ("gemm", "grouped")}
    return made(Efficiency, {"best": {"bf16": 0.85}, **given, **by_dtype})


def predict(sweep: Sweep, device: Device, values: Mapping[str, float]) -> Array:
    """Time of a sweep's operators with some constants [s].

    The device's data sheet counts; constants that the values lack are the catalogue's, and what is believed of any collector.
    """
    efficiency = dataclasses.replace(efficiency_of(values, device.efficiency), sustained_clock=1.0, narrow_clock=1.0)
    numbers = dataclasses.replace(device, efficiency=efficiency).numbers(sweep.dtype)
    collector = {
        name: values.get(f"{sweep.label}/{name}", values.get(f"{sweep.kind} {sweep.dtype}/{name}", value))
        for name, value in operator_times.COLLECTOR.items()
    }
    return operator_times.seconds(sweep, numbers, collector)


def unknowns(sweeps: Sequence[Sweep], known: Mapping[str, float], priors: Mapping[str, tuple[float, float]],
             ) -> list[UnknownConstant]:  # fmt: skip
    """Constants that a device's sweeps identify, of kinds that are fitted together, around their priors."""
    kinds = {sweep.kind for sweep in sweeps}
    masks = {sweep.kernel.split(" ")[0] for sweep in sweeps if sweep.kind == "attention"}
    windowed = any(np.any(sweep.columns.get("window", np.zeros(1)) > 0.0) for sweep in sweeps)
    dtypes = dict.fromkeys(SAME_UNITS.get(sweep.dtype, sweep.dtype) for sweep in sweeps)
    keys: list[str] = []
    for kind in (kind for kind in BY_KIND if kind in kinds):
        shared, by_dtype = BY_KIND[kind]
        keys += [name for name in shared if _identified(name, masks, windowed)]
        keys += [f"{name}.{dtype}" for dtype in dtypes for name in by_dtype]
    keys += _of_collectors(sweeps)
    found = []
    for key in keys:
        best = known.get("best." + key.split(".", 1)[-1], math.inf) if field_of(key) in ("gemm", "grouped") else math.inf
        found.append(unknown(key, PRIORS[field_of(key)], priors, best))
    return found


def unknown(key: str, prior: Prior, told: Mapping[str, tuple[float, float]], most: float = math.inf) -> UnknownConstant:
    """A constant of a device to be fitted.

    `told` is the value and spread of the logarithm by key, by other devices; `most` what it can be, where that is below the
    prior's bound.
    """
    value, spread, low, high = prior
    value, spread = told.get(key, (value, spread))
    high = min(high, most)
    return UnknownConstant("device", key, min(max(value, low * 1.001), high * 0.999), spread, low, high)


def solved(
    constants: Sequence[UnknownConstant], predicted: Callable[[Values], Array], seconds: Array, weights: Array
) -> tuple[Values, Values]:
    """Values of constants that predict what was measured, and the standard errors of their logarithms, by key."""
    keys, measured = [constant.field for constant in constants], np.log(seconds)

    def residuals(given: Array, rows: Array | None) -> Array:
        errors: Array = np.log(predicted(dict(zip(keys, map(float, given), strict=True)))) - measured
        return errors if rows is None else errors[rows]

    every = [np.arange(len(measured))] * len(constants)
    result = fit(constants, residuals, len(measured), every, weights, NOISE, ITERATIONS)
    values, errors = (dict(zip(keys, map(float, of), strict=True)) for of in (result.values, result.standard_errors))
    return values, errors


def _of_collectors(sweeps: Sequence[Sweep]) -> list[str]:
    """Keys of what is the collectors' own: the device's constants are of the kernel that ran most often, of attention training's.

    How much slower another kernel is, and how many more keys serving loses where training was measured beside it; what is spent
    around a call of serving, and how long a call of training takes at least where it waits for the host.
    """
    keys: list[str] = []
    for dtype, kind in dict.fromkeys((sweep.dtype, sweep.kind) for sweep in sweeps):
        mine = [sweep for sweep in sweeps if (sweep.dtype, sweep.kind) == (dtype, kind)]
        mine.sort(key=lambda sweep: (_serves(sweep), -len(sweep.seconds)))
        first: set[str] = set()
        for sweep in mine:
            told = sweep.kernel.split(" ")[0] if kind == "attention" else ""
            both = told == "causal" and any(TRAINING in s.kernel for s in sweeps)  # a backward pass tells of causal kernels
            apart = {
                "slowdown": told in first, "lost": _serves(sweep) and (told in first or both),
                "overhead": TRAINING not in sweep.kernel, "floor": TRAINING in sweep.kernel and REPEATED not in sweep.kernel,
            }  # fmt: skip
            keys += [f"{sweep.label}/{name}" for name in COLLECTOR[kind] if apart.get(name, True)]
            first.add(told)
    return keys


def _serves(sweep: Sweep) -> bool:
    return SERVING in sweep.kernel


def _identified(name: str, masks: set[str], windowed: bool) -> bool:
    if name in ("attention_backward", "memory"):
        return True
    if name.startswith("full_attention") or name == "attention_unaligned":
        return "full" in masks
    if name.startswith("attention") and masks and "causal" not in masks:
        return name == "attention_rows"
    return name not in WITHOUT_WINDOW or windowed


def fit_device(sweeps: Sequence[Sweep], device: Device, priors: Mapping[str, tuple[float, float]]) -> Fitted:
    """Constants of one device from its sweeps, one kind of operator after the other.

    `priors` are the value and spread of the logarithm by key, before these sweeps.
    """
    values: Values = {key: value for key, (value, _) in priors.items()} | best_shares(sweeps)
    own: Values = dict.fromkeys(best_shares(sweeps), 0.01)
    for kinds in TOGETHER:
        mine = [sweep for sweep in sweeps if sweep.kind in kinds]
        if not mine:
            continue
        constants = unknowns(mine, values, priors)
        told = {constant.field for constant in constants}
        of_the_device = [f"{sweep.label}/slowdown" for sweep in mine if not _serves(sweep)]
        values |= {key: 1.0 for key in of_the_device if key not in told}

        def predicted(given: Values, mine: Sequence[Sweep] = mine, known: Values = values) -> Array:
            return np.concatenate([predict(sweep, device, known | given) for sweep in mine])

        seconds, weights = np.concatenate([sweep.seconds for sweep in mine]), np.concatenate([_weights(sweep) for sweep in mine])
        found, errors = solved(constants, predicted, seconds, weights)
        values, own = values | found, own | errors
    files = tuple(sorted({sweep.file for sweep in sweeps}))
    labels = {sweep.label for sweep in sweeps}
    kept = {key: value for key, value in values.items() if "/" not in key or key.split("/")[0] in labels}
    errors = {key: own.get(key, priors[key][1] if key in priors else 0.0) for key in kept}
    return Fitted(kept, errors, frozenset(own), files)


def _weights(sweep: Sweep) -> Array:
    count = len(sweep.seconds)
    small = (sweep.kind == "product") & (sweep.flop() < SMALL)
    return np.where(small, SMALL_WEIGHT, 1.0) * min(1.0, ROWS_THAT_COUNT / count) ** 0.5


def pooled(fits: Mapping[str, Fitted], architecture: str, without: str = "") -> dict[str, tuple[float, float]]:
    """What measured devices say of one of an architecture: median and spread of the logarithm, of every constant."""
    of = {name: GENERATIONS.get(costmodel.load_device(name).architecture, "") for name in fits if name != without}
    told = Counter(key for name in of for key in fits[name].values if key in fits[name].own)
    keys = [key for key, count in told.items() if field_of(key) != "slowdown" or count > 1]
    return {key: _nested(key, fits, of, GENERATIONS.get(architecture, "")) for key in keys}


def _nested(key: str, fits: Mapping[str, Fitted], of: Mapping[str, str], asked: str) -> tuple[float, float]:
    """Nested mean of one constant: its median for a new device of a generation, and its spread."""
    mine = {name: math.log(fits[name].values[key]) for name in of if key in fits[name].own}
    generations: dict[str, list[float]] = {}
    for name, value in mine.items():
        generations.setdefault(of[name], []).append(value)
    means = {name: float(np.mean(values)) for name, values in generations.items()}
    families: dict[str, list[float]] = {}
    for name, mean in means.items():
        families.setdefault(family_of(name), []).append(mean)
    device = _spread(list(generations.values()), LEAST_SPREAD["device"])
    generation = _spread(list(families.values()), LEAST_SPREAD["generation"])
    family = _spread([[float(np.mean(values)) for values in families.values()]], LEAST_SPREAD["family"])
    centre, variance = float(np.mean([np.mean(values) for values in families.values()])), family**2 / len(families)
    steps = ((families.get(family_of(asked) if asked else ""), generation, family), (generations.get(asked), device, generation))
    for values, within, between in steps:
        variance += between**2
        if values:
            scatter = within**2 / len(values)
            weight = variance / (variance + scatter)
            centre, variance = centre + weight * (float(np.mean(values)) - centre), weight * scatter
    return math.exp(centre), math.sqrt(variance + device**2)


def _spread(groups: Sequence[Sequence[float]], least: float) -> float:
    """Standard deviation within groups, with one doubtful observation at the least that is believed."""
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum(float(np.var(group)) * len(group) for group in groups)
    return max(math.sqrt((squares + least**2) / (freedom + 1)), least)


def devices_of(sweeps: Sequence[Sweep]) -> dict[str, list[Sweep]]:
    """Sweeps of each device."""
    found: dict[str, list[Sweep]] = {}
    for sweep in sweeps:
        found.setdefault(sweep.device, []).append(sweep)
    return found


def fit_all(sweeps: Sequence[Sweep]) -> dict[str, Fitted]:
    """Constants of every device that was measured: around any device's, then around those of its kind."""
    by_device = devices_of(sweeps)
    devices = {name: blank(name) for name in by_device}
    first = {name: fit_device(mine, devices[name], {}) for name, mine in by_device.items()}
    return {
        name: fit_device(mine, devices[name], pooled(first, devices[name].architecture, without=name))
        for name, mine in by_device.items()
    }


def blank(name: str) -> Device:
    """A device's data sheet, with what is believed of any device."""
    return dataclasses.replace(costmodel.load_device(name), efficiency=default_efficiency())
