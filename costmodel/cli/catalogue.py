"""`costmodel models`, `devices`, `clusters`, `frameworks`, `show`, `accuracy`: what is known, and how well."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from costmodel.arithmetic.named_tuples import Row, flat
from costmodel.catalogue import loader, software
from costmodel.catalogue.accuracy import HEADINGS, accuracy, as_cells
from costmodel.catalogue.hardware_words import said_hardware
from costmodel.catalogue.loader import Kind, efficiency_source
from costmodel.catalogue.software import constants_by_owner, is_framework, load_framework
from costmodel.catalogue.spellings import squeezed
from costmodel.cli import codes, layout
from costmodel.cli.arguments import Commands, Misused, add_output, length, many, read_cluster
from costmodel.cli.output import TerminalTable, gib, print_json, print_page, respond, shown, table
from costmodel.cli.question import read_with_notes
from costmodel.description.cluster import Cluster
from costmodel.description.device import Device
from costmodel.evaluation.error_model import constant_error
from costmodel.text.checks import positive_int
from costmodel.text.errors import CostModelError, InvalidValue
from costmodel.text.units import format_count

KINDS = ("model", "device", "cluster", "framework")
_WORD = {"model": "llama", "device": "h100", "cluster": "h100", "framework": "megatron"}
"""An example of a word by which a listing is narrowed."""


class _Words(argparse.Action):
    """Stores words as one, or None where there is none."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option_string: str | None = None
    ) -> None:
        assert isinstance(values, list)
        namespace.word = " ".join(values) or None


def add(commands: Commands) -> None:
    """Add the commands."""
    for kind in KINDS:
        listing = commands.add_parser(
            f"{kind}s", help=f"{kind}s of the catalogue",
            examples=(f"costmodel {kind}s", f"costmodel {kind}s {_WORD[kind]}", f"costmodel {kind}s --json"),
        )  # fmt: skip
        listing.add_argument(
            "word", metavar="WORD", nargs="*", action=_Words, help=f"only those with it in their name (default: every {kind})"
        )
        add_output(listing, "a table")
        listing.set_defaults(run=_list, kind=kind)

    accuracy = commands.add_parser(
        "accuracy", help="errors of the estimates on measured runs",
        examples=("costmodel accuracy h100", "costmodel accuracy --markdown"),
    )  # fmt: skip
    accuracy.add_argument(
        "word", metavar="WORD", nargs="*", action=_Words, help="only campaigns with it in their name (default: every one)"
    )
    add_output(accuracy, "a table")
    accuracy.set_defaults(run=_accuracy)

    showing = commands.add_parser(
        "show", help="everything about one entry, and where it comes from",
        examples=(
            "costmodel show h100-sxm", "costmodel show config.json", "costmodel show cluster ours.toml",
            "costmodel show framework megatron-core --device h100",
        ),
    )  # fmt: skip
    showing.add_argument("name", metavar="NAME", nargs="+",
                         help="a model, device, cluster or framework, or a file; its kind may stand before it")  # fmt: skip
    showing.add_argument("--kind", metavar="K", help=f"one of {', '.join(KINDS)}; a file's is model unless given")
    showing.add_argument("--seq-len", type=many(length), metavar="N,...", help="of a model: lengths for its FLOP of a token")
    showing.add_argument("--device", metavar="D", help="of a framework: why its constants are what they are there")
    add_output(showing)
    showing.set_defaults(run=_show, notes=[], verbose=True)


def _accuracy(arguments: argparse.Namespace) -> int:
    *campaigns, total = accuracy()
    word = arguments.word
    found = [one for one in [*campaigns, total] if word is None or _has({"name": one["campaign"]}, word)]
    if not found:
        raise InvalidValue("word", word, "a part of the name of a campaign (`costmodel accuracy` lists all)")
    if arguments.json:
        print_json([one for one in found if one is not total])
        return codes.ANSWERED
    rows = [as_cells(one) for one in found]
    head = "Errors of the shipped constants on measured runs, by campaign: people, software and kind of device"
    if arguments.markdown:
        print_page(head, table(HEADINGS, rows), markdown=True)
        return codes.ANSWERED
    places = [HEADINGS.index(name) for name in _FIGURES]
    cells = [[" / ".join(row[0].rsplit("/", 2)), *(row[place] for place in places[1:])] for row in rows]
    print_page(head, table(list(_FIGURES.values()), cells, words=1),
               "time, memory: mean error; holds: of the 90 % intervals; --json and --markdown have all figures")
    return codes.ANSWERED


_FIGURES = {
    "campaign": "campaign", "timed": "timed", "time, mean error": "time", "intervals hold": "holds",
    "memory, mean error": "memory", "memory's hold": "holds",
}  # fmt: skip
"""Figures of a campaign that have room on a terminal, and their headings there."""
_OF_LOADER: dict[str, Kind] = {"model": "model", "device": "device", "cluster": "cluster"}
"""Kinds of entries that the catalogue's loader has."""


def _names(kind: str) -> list[str]:
    return software.framework_names() if kind == "framework" else loader.names(_OF_LOADER[kind])


def _load(kind: str, name: str) -> object:
    if kind == "framework":
        return software.load_framework(name)
    return {"model": loader.load_model, "cluster": read_cluster, "device": loader.load_device}[kind](name)


def _list(arguments: argparse.Namespace) -> int:
    kind: str = arguments.kind
    columns = _COLUMNS[kind]
    row_of = _ROWS.get(kind, lambda entry: {name: getattr(entry, name) for name, *_ in columns})
    rows = [row_of(_load(kind, name)) for name in _names(kind)]
    if arguments.word is not None:
        rows = [row for row in rows if _has(row, arguments.word)]
        if not rows:
            raise InvalidValue("word", arguments.word, f"a part of the name of a {kind} (`costmodel {kind}s` lists all)")
    cells = [[show(row[name]) for name, _, show in columns] for row in rows]
    words = [place for place, (_, _, show) in enumerate(columns) if show is str]
    whole = table([title for _, title, _ in columns], cells, words)
    left_out: tuple[str, ...] = ()
    if not arguments.markdown and kind != "framework":  # whose titles say what they are
        whole, left_out = layout.listed(whole, layout.page_width())
    narrow = f"Not on a page of {layout.page_width()} columns, but in --json: {', '.join(left_out)}" if left_out else ""
    return respond(arguments, lambda: rows, lambda: [whole, "\n".join(filter(None, (narrow, BELOW.get(kind, ""))))])


def _has(row: Row, word: str) -> bool:
    """Whether a name, a title or a cluster's device holds every part of a word, whatever its case and punctuation."""
    title = row.get("title", "").partition(",")[0].split()
    amounts = ["".join(pair) for pair in itertools.pairwise(title) if pair[0].isdigit()]  # 80 GB
    texts = (row["name"], row.get("device", ""), *row.get("title", "").split(), *amounts)
    told = [squeezed(text) for text in texts]
    makers = {text.lower() for text in texts}  # which a squeezed name is without
    return all(
        any(squeezed(part) in text for text in told) if squeezed(part) else part.lower() in makers for part in word.split()
    )


def _device_row(device: Device) -> Row:
    return {
        "name": device.name, "title": device.title, "constants": efficiency_source(device.name),
        "memory_bytes": device.memory, "memory_bandwidth_bytes_per_s": device.memory_bandwidth,
        **{f"{dtype}_flop_per_s": device.dense_peak.get(dtype) for dtype in ("fp16", "bf16", "fp8", "fp4")},
    }  # fmt: skip


def _cluster_row(cluster: Cluster) -> Row:
    levels = [
        {"name": level.name, "size": level.size, "latency_s": level.latency, "bandwidth_bytes_per_s": level.bandwidth}
        for level in cluster.levels
    ]
    return {
        "name": cluster.name, "title": cluster.title, "device": cluster.device.name, "levels": levels,
        "gpus_per_node": cluster.gpus_per_node,
    }  # fmt: skip


BELOW = {
    "model": "total, active: parameters; `costmodel models WORD` lists those with it in their name, `costmodel show NAME` one",
    "device": "fp16, bf16, fp8, fp4: dense peaks in TFLOP/s; `costmodel show NAME` says where numbers come from",
    "framework": "NAME@2025.8 is its release of that month; `costmodel show framework NAME --device D`: why its constants are so",
}
"""What is said below a listing."""
_ROWS: dict[str, Callable[[Any], Row]] = {"device": _device_row, "cluster": _cluster_row}
"""Rows of JSON that hold more than the columns do, or amounts in units of their own."""


def _tera(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1e12:,.0f}" if value >= 1e15 else f"{value / 1e12:.4g}"


def _level_rates(levels: Sequence[Row]) -> str:
    return " / ".join(f"{level['bandwidth_bytes_per_s'] / 1e9:.3g}" for level in levels)


_COLUMNS: dict[str, list[tuple[str, str, Callable[[Any], str]]]] = {
    "model": [
        ("name", "name", str), ("parameters", "total", format_count), ("active_parameters", "active", format_count),
        *[(name, name.replace("_", " "), shown) for name in ("layers", "hidden", "heads", "kv_heads", "experts", "vocabulary")],
    ],
    "device": [
        ("name", "name", str), ("memory_bytes", "memory GiB", gib),
        ("memory_bandwidth_bytes_per_s", "memory GB/s", lambda value: f"{value / 1e9:,.0f}"),
        *[(f"{dtype}_flop_per_s", dtype, _tera) for dtype in ("fp16", "bf16", "fp8", "fp4")], ("constants", "constants", str),
    ],
    "cluster": [
        ("name", "name", str), ("device", "device", str), ("gpus_per_node", "GPUs a node", shown),
        ("levels", "GB/s of a GPU, by level", _level_rates), ("title", "title", str),
    ],
    "framework": [
        ("name", "name", str), ("title", "title", str), ("attention", "attention", str),
        ("zero_stage", "ZeRO", shown), ("gradient_bytes", "gradient bytes", shown), ("optimizer_bytes", "optimizer bytes", shown),
    ],
}  # fmt: skip
"""Columns of a listing, in the order in which they matter: key of its JSON, title, and how people read it."""


def _kind_of(name: str, kind: str | None) -> str:
    """The kind of an entry, or of a file."""
    if kind is not None:
        if kind not in KINDS:
            raise InvalidValue("kind", kind, "one of " + ", ".join(KINDS))
        return kind
    known = {entry: each for each in reversed(KINDS) for entry in _names(each)}
    if name in known:
        return known[name]
    if loader.is_file(name):
        return "model"
    if loader.instance(name) or loader.alias("cluster", name) or said_hardware(name) is not None:
        return "cluster"
    if loader.alias("device", name):
        return "device"
    if is_framework(name):
        return "framework"
    import difflib

    near = difflib.get_close_matches(name, known, n=4, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "`costmodel models` lists models; devices, clusters alike"
    raise CostModelError(f"no {', '.join(KINDS[:-1])} or {KINDS[-1]} named {name[:80]!r} in the catalogue; {hint}")


def _named(words: Sequence[str], kind: str | None) -> tuple[str, str]:
    """The name of an entry and its kind, which may be said before it."""
    kinds = {word: one for one in KINDS for word in (one, f"{one}s")}
    if len(words) > 1 and words[0] in kinds:
        kind, words = kinds[words[0]], words[1:]
    name = " ".join(words)
    return name, _kind_of(name, kind)


def _why(name: str, kind: str, arguments: argparse.Namespace) -> int:
    """Constants of a framework on a device, as whom they were fitted to has them, from all software to this on that."""
    if kind != "framework":
        raise InvalidValue("device", arguments.device, f"no --device with a {kind}: constants are a framework's")
    device = loader.load_device(arguments.device)
    owners = constants_by_owner(name, device.architecture)
    framework = load_framework(name, device.architecture)
    used = flat(framework.constants)
    rows = [
        {"constant": path, **{owner: values.get(path) for owner, values in owners.items()}, "used": used[path],
         "standard_error": constant_error(path, device, framework)[0]}
        for path in owners[next(iter(owners))]
    ]  # fmt: skip

    def told(row: Row) -> list[str]:
        """Of each owner what it makes of the constant, nothing where that is what another before it made."""
        values = [row[owner] for owner in owners]
        return ["" if value in values[:place] else shown(value) for place, value in enumerate(values)]

    cells = [[row["constant"], *told(row), shown(row["used"]), f"{100 * row['standard_error']:.0f} %"] for row in rows]
    head = (
        f"Constants of {framework.name} on {device.name} ({device.architecture}): those of all software, and what runs of the "
        "architecture, of the framework and of both made of them. Kernels that it was never timed with there are as the "
        "architecture's. Where nothing stands, runs of the owner said nothing of it"
    )
    return respond(arguments, lambda: rows, lambda: [head, table(["constant", *owners, "used", "error"], cells, words=1)])


def _show(arguments: argparse.Namespace) -> int:
    name, kind = _named(arguments.name, arguments.kind)
    if arguments.device is not None:
        return _why(name, kind, arguments)
    if arguments.seq_len is not None and kind != "model":
        raise Misused(f"--seq-len goes with a model: {name[:80]} is a {kind}")
    entry: Any = read_with_notes(name, arguments) if kind == "model" else _load(kind, name)
    fields = dataclasses.asdict(entry)
    sources: Row = {}
    known = loader.alias(kind, name) or name
    if kind in _OF_LOADER and known in loader.names(_OF_LOADER[kind]):
        sources = loader.provenance(_OF_LOADER[kind], known)
    counts: dict[str, int] = {}
    flop: dict[int, float] = {}
    if kind == "model":
        counts = {**entry.parameters_by_part(), "active": entry.active_parameters}
        asked = [positive_int("seq_len", tokens, 10**8) for tokens in arguments.seq_len or [4096]]
        lengths = sorted({*asked, entry.trained_length or 4096})
        flop = {tokens: entry.flop_per_token(tokens) for tokens in lengths}
    if kind == "framework":
        fields["constants"] = flat(entry.constants)
    extra = {"parameters": counts, "flop_per_token": flop} if counts else {}
    lines = [(name, value) for name, value in _flat(fields) if name not in ("name", "title")]
    if kind == "model":  # most models lack most of what a model can have
        usual = {field.name: shown(field.default) for field in dataclasses.fields(entry)}
        lines = [(name, value) for name, value in lines if value not in ("0", "none", "-", usual.get(name))]
    title = f": {fields['title']}" if fields.get("title") else ""
    units = "" if kind == "model" else "\nIn SI units: s, bytes, bytes/s, FLOP/s"
    page: list[TerminalTable | str] = [f"{kind} {entry.name}{title}{units}", table(["field", "value"], lines, words=2)]
    if counts:
        rows = [(name.replace("_", " "), f"{count:,}") for name, count in counts.items()]
        page.append(table(["parameters", ""], rows))
        told = [(f"in sequences of {tokens:,}", f"{count:.4g}") for tokens, count in flop.items()]
        page.append(table(["FLOP of a token, forward and backward", ""], told))
    if sources:
        page.append(table(["value", "kind", "where it comes from"], _origins(sources), words=3))
    return respond(arguments, lambda: {"kind": kind, **fields, **extra, "provenance": sources}, lambda: page)


def _flat(fields: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested fields as dotted names with values to read."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            for item in value:
                inner = {key: part for key, part in item.items() if key != "name"}
                yield from _flat(inner, f"{prefix}{name}.{item.get('name', '')}.")
        else:
            yield prefix + name, shown(value)


def _origins(sources: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Nested provenance as rows of name, kind and source, what else is said behind the source."""
    for name, value in sources.items():
        if isinstance(value, Mapping) and "source" in value:
            others = [f"{key} {shown(more)}" for key, more in value.items() if key not in ("source", "kind")]
            yield prefix + name, str(value.get("kind", "")), "; ".join([str(value["source"]), *others])
        elif isinstance(value, Mapping):
            yield from _origins(value, f"{prefix}{name}.")
        else:
            yield prefix + name, "", shown(value)
