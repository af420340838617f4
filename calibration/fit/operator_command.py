"""Fit what devices do to operators measured on them, write it into the catalogue, say how far off it is.

Three errors of every device and kind of operator: of the constants fitted here, of those that the catalogue ships, and of
those that the device's data sheet gives through the relation pooled over the other devices.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import costmodel
from calibration.data.micro import Array, Sweep, read_sweeps
from calibration.data.reference import table_rows
from calibration.fit.devices import GENERATIONS, SMALL, Fitted, Values, blank, devices_of, fit_all, fit_device, pooled, predict
from calibration.fit.earlier_sweeps import read_earlier
from calibration.fit.measured_collectives import collectives_in_words
from calibration.fit.measured_layers import in_words, read_layers
from calibration.fit.measured_operators import read_measured
from calibration.written import CATALOGUE, as_csv, generated, write
from costmodel.arithmetic.named_tuples import Row
from costmodel.catalogue.loader import names
from costmodel.description.device import Efficiency

TARGET = CATALOGUE / "efficiencies.toml"
COLLECTORS = Path(__file__).parents[1] / "collectors.csv"
"""What benchmarks of a device added to its operators, which no estimate uses: a line for each device, operator and constant."""
BARS = {
    "product": 0.08, "product fp8-block": 0.12, "grouped product": 0.12, "attention": 0.10, "attention backward": 0.10,
    "cast": 0.10, "stream": 0.10,
}  # fmt: skip
"""Median error that is asked of each kind on every device, that of one dtype before that of all."""
Relation = Mapping[str, tuple[float, float]]
"""Value and spread of its logarithm of each constant, as other devices have it."""
UNSEEN_BAR = 0.20
"""The same where the device is left out."""


@dataclasses.dataclass(frozen=True)
class Line:
    """Errors of one device and kind: absolute relative ones, medians and a mean."""

    device: str
    kind: str
    dtype: str
    file: str  # where from
    rows: int  # operators
    median: float  # of the constants fitted to these rows
    large: float  # the same of products of at least 1 GFLOP; of all rows of other kinds
    mean: float
    shipped: float  # median, of the catalogue's constants
    unseen: float  # median, of the relation pooled over the other devices
    bar: float  # what is asked of `median`

    @classmethod
    def of(cls, sweep: Sweep, fitted: Array, large: Array, shipped: Array, unseen: Array) -> Line:
        """Of the errors of all operators like a sweep's."""
        first, second, third, fourth = (float(np.median(errors)) for errors in (fitted, large, shipped, unseen))
        mean, bar = float(fitted.mean()), bar_of(sweep.kind, sweep.dtype)
        return cls(sweep.device, sweep.kind, sweep.dtype, sweep.file, len(fitted), first, second, mean, third, fourth, bar)


def bar_of(kind: str, dtype: str) -> float:
    """Median error asked of a kind and dtype.

    Examples
    --------
    >>> bar_of("product", "bf16"), bar_of("product", "fp8-block")
    (0.08, 0.12)
    """
    return BARS.get(f"{kind} {dtype}", BARS[kind])


def errors(sweeps: Sequence[Sweep], values: Mapping[str, float], device: costmodel.Device) -> Array:
    """Absolute relative errors of every operator of some sweeps of a device."""
    return np.concatenate([np.abs(predict(sweep, device, values) / sweep.seconds - 1.0) for sweep in sweeps])


def read_overheads() -> dict[str, Values]:
    """The collectors' constants of every device, as they were fitted last."""
    found: dict[str, Values] = {}
    for row in table_rows(COLLECTORS):
        found.setdefault(row["device"], {})[row["constant"]] = float(row["value"])
    return found


def lines(sweeps: Sequence[Sweep], fits: Mapping[str, Fitted], relations: Mapping[str, Relation]) -> list[Line]:
    """Errors of every device and kind."""
    overheads = read_overheads()
    groups: dict[tuple[str, str, str, str], list[Sweep]] = {}
    for sweep in sweeps:
        groups.setdefault((sweep.device, sweep.kind, sweep.dtype, sweep.file), []).append(sweep)
    out = []
    for (name, kind, *_), mine in sorted(groups.items()):
        fitted = errors(mine, fits[name].values, blank(name))
        large = np.concatenate([(sweep.flop() >= SMALL) | (kind != "product") for sweep in mine])
        shipped = errors(mine, overheads.get(name, {}), costmodel.load_device(name))
        unseen = errors(mine, medians(relations[name]) | routing(fits[name]), blank(name))
        out.append(Line.of(mine[0], fitted, fitted[large], shipped, unseen))
    return out


def routing(fitted: Fitted) -> dict[str, float]:
    """How a collector dealt tokens to ranks, which no device has a part in."""
    return {key: value for key, value in fitted.values.items() if key.endswith("/spread")}


def _by_dtype(values: Mapping[str, float]) -> Row:
    """Constants, and behind them a table of each that every dtype, or operation, has of its own."""
    entry: Row = {}
    for key, value in values.items():
        field, _, dtype = key.partition(".")
        if dtype:
            entry.setdefault(field, {})[dtype] = _rounded(value)
        else:
            entry[field] = _rounded(value)
    return dict(sorted(entry.items(), key=lambda item: isinstance(item[1], dict)))


def medians(relation: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Medians of a pooled relation, without its spreads."""
    return {key: value for key, (value, _) in relation.items()}


def table_of(values: Mapping[str, float], spreads: Mapping[str, float]) -> Row:
    """Constants as the catalogue has them: by dtype in tables, and their standard errors."""
    known = {field.name for field in dataclasses.fields(Efficiency)}
    return {
        **_by_dtype({key: value for key, value in values.items() if key.partition(".")[0] in known}),
        "standard_error": {key: round(float(error), 4) for key, error in spreads.items() if "/" not in key},
    }  # fmt: skip


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def shipped_relation(content: Row, architecture: str) -> Relation:
    """What the catalogue's measured devices say of one of an architecture."""
    entry = content["pooled"].get(architecture, content["pooled"]["default"])
    values: Values = {}
    for field, value in entry.items():
        values |= {f"{field}.{dtype}": one for dtype, one in value.items()} if isinstance(value, dict) else {field: value}
    return {key: (values[key], spread) for key, spread in entry["standard_error"].items()}


def pooled_tables(fits: Mapping[str, Fitted], date: str) -> Row:
    """The pooled relation of every architecture as the catalogue has it."""
    every = {costmodel.load_device(name).architecture for name in names("device")}
    content: Row = {"date": date, "devices": sorted(fits)}
    for architecture in ("default", *sorted(every & GENERATIONS.keys())):
        relation = pooled(fits, architecture)
        content[architecture] = table_of(medians(relation), {key: spread for key, (_, spread) in relation.items()})
    return content


def entries(fits: Mapping[str, Fitted], date: str) -> Row:
    """Every device that was measured as the catalogue has it."""
    return {
        name: {"date": date, "measurements": list(fitted.files), **table_of(fitted.values, fitted.errors)}
        for name, fitted in sorted(fits.items())
    }


def collectors(fits: Mapping[str, Fitted], kept: Mapping[str, Values]) -> str:
    """The collectors' constants as CSV: what a device's operators told, over what was kept of it."""
    told = {name: {key: _rounded(fitted.values[key]) for key in sorted(fitted.values) if "/" in key and key in fitted.own}
            for name, fitted in fits.items()}  # fmt: skip
    every = {name: {**kept.get(name, {}), **told.get(name, {})} for name in sorted({*kept, *told})}
    return as_csv([("device", "constant", "value"), *((name, *item) for name, of in every.items() for item in of.items())])


def merged(known: Row, entry: Row, own: frozenset[str]) -> Row:
    """A device of the catalogue with what its operators told anew; what they didn't tell stays.

    `own` are the keys that its operators told.
    """
    new: Row = {"measurements": sorted({*known.get("measurements", []), *entry["measurements"]})}
    for field, value in entry.items():
        if field == "standard_error":
            new[field] = {key: one for key, one in value.items() if key in own}
        elif isinstance(value, dict):
            new[field] = {dtype: one for dtype, one in value.items() if f"{field}.{dtype}" in own}
        elif field not in Efficiency.__dataclass_fields__ or field in own:
            new.setdefault(field, value)
    return _overlaid(known, new)


def _overlaid(known: Row, new: Row) -> Row:
    """A table with some of its entries anew, table by table within it."""
    return known | {key: _overlaid(known.get(key, {}), one) if isinstance(one, dict) else one for key, one in new.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE",
                        help="files of `measure`, whose devices are fitted around what others say; if none is named, every sweep "
                             "of the reference folder")  # fmt: skip
    parser.add_argument("--reference", type=Path, metavar="DIR", help="reference folder (default: ../shared/reference)")
    parser.add_argument("--json", action="store_true", help="print the errors as JSON")
    parser.add_argument("--write", action="store_true", help="write the constants into the catalogue")


def run(arguments: argparse.Namespace) -> int:
    """Fit, report, and write where that is asked for."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    content: Row = tomllib.loads(TARGET.read_text(encoding="utf-8"))
    if arguments.files:
        sweeps = [sweep for path in arguments.files for sweep in read_measured(path)]
        relations = {name: shipped_relation(content, blank(name).architecture) for name in devices_of(sweeps)}
        fits = {name: fit_device(mine, blank(name), relations[name]) for name, mine in devices_of(sweeps).items()}
        kept, overheads = content, read_overheads()
    else:
        sweeps = read_sweeps(arguments.reference) + read_earlier(arguments.reference)
        fits = fit_all(sweeps)
        relations = {name: pooled(fits, blank(name).architecture, without=name) for name in fits}
        kept, overheads = {"pooled": pooled_tables(fits, date)}, {}
    found = lines(sweeps, fits, relations)
    if arguments.json:
        print(json.dumps({"operators": [dataclasses.asdict(line) for line in found], "unseen_bar": UNSEEN_BAR}, indent=2))
    else:
        report(found)
        for path in arguments.files:
            for line in [*in_words(read_layers(path)), *collectives_in_words(path)]:
                print(line)
    if arguments.write:
        made = entries(fits, date)
        if arguments.files:
            made |= {name: merged(content[name], made[name], fits[name].own) for name in made.keys() & content.keys()}
        write({
            TARGET: generated("operators", "measured operators", {**kept, **made}), COLLECTORS: collectors(fits, overheads),
        })  # fmt: skip
    return 0


def report(found: Sequence[Line]) -> None:
    """Print the errors as a table; a star marks a median beyond its bar."""
    heads = ("rows", "median", "large", "mean", "shipped", "unseen", "bar")
    print(f"{'device':20s} {'kind':28s} " + " ".join(f"{head:>8s}" for head in heads) + " file")
    for line in found:
        own = [(line.median, line.bar), (line.large, line.bar), (line.mean, 1e9)]
        judged = [*own, (line.shipped, 1e9), (line.unseen, UNSEEN_BAR)]
        cells = " ".join(f"{value:7.3f}{'*' if value > bar else ' '}" for value, bar in judged)
        print(f"{line.device:20s} {line.kind + ' ' + line.dtype:28s} {line.rows:8d} {cells} {line.bar:8.2f} {line.file}")
