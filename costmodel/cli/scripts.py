"""`costmodel trace`: training code run on GPUs that aren't there, and what it takes, holds, sends and does wrong."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from costmodel.catalogue import loader
from costmodel.catalogue.releases import asked
from costmodel.cli import codes
from costmodel.cli.arguments import Commands, Misused, add_output, add_size, gpus_of, sized_cluster, whole
from costmodel.cli.calibrated import add_calibration, calibrated_software, with_calibration
from costmodel.cli.files import perfetto_file
from costmodel.cli.output import gib, print_json, print_page, share, table, whole_plan, written
from costmodel.text.errors import IllegalPlan, InvalidValue, NotModelled
from costmodel.text.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from costmodel.cli.layout import TerminalTable
    from costmodel.description.cluster import Cluster
    from costmodel.description.framework import Framework
    from costmodel.evaluation.estimation import Estimate
    from costmodel.evaluation.search_result import SearchResult
    from costmodel.traces.faults import Fault
    from costmodel.traces.memory import TraceMemory
    from costmodel.traces.playback import TracePlayback
    from costmodel.traces.pricing import TraceEstimate
    from costmodel.traces.recognition import Recognised
    from costmodel.traces.record import Trace

UNNAMED = "the code doesn't say which model it trains, as those of transformers do (--model names one of the catalogue's)"
TOGETHER = {"hang": ("ranks disagree", "no partner")}
"""Words for several kinds of faults."""
ASSUMED = 8
"""Sentences on assumed values that a page shows; JSON has all."""


def add(commands: Commands) -> None:
    """Add the commands."""
    usage = "costmodel trace [--cluster C | --device D] [--gpus N | --nodes N] [options] train.py [-- ARGUMENTS OF IT]"
    tracing = commands.add_parser(
        "trace",
        usage=usage,
        help="your own training code on GPUs that aren't there",
        examples=(
            "costmodel trace --cluster dgx-h100 --gpus 64 train.py -- --batch-size 4",
            "costmodel trace --device 8xa100-sxm-80gb train.py",
            "costmodel trace --gpus 8 -m torchtitan.train -- --job.config_file llama3_8b.toml",
            "costmodel trace --gpus 8 --fail-on hang,out-of-memory train.py",
            "costmodel trace --gpus 3072 --better --links --perfetto step.json train.py",
        ),
    )
    tracing.add_argument("script", metavar="SCRIPT", help="as torchrun takes it; a trace that was saved (.npz) is read instead")
    tracing.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="of the script, behind --")
    tracing.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module's name")
    where = tracing.add_mutually_exclusive_group()
    where.add_argument(
        "--cluster", default="dgx-h100", metavar="C", help="name in the catalogue, or a TOML file (default: dgx-h100)",
    )  # fmt: skip
    where.add_argument("--device", metavar="D", help="a GPU by name or TOML file, in nodes as it comes in")
    add_size(tracing)
    tracing.add_argument(
        "--roles", default="auto", metavar="R",
        help="ranks to run: auto (the first, the last, and whom they send to), all, or such as 0,8",
    )  # fmt: skip
    tracing.add_argument(
        "--steps", type=whole, default=3, metavar="K", help="of the optimizer to run; the last counts (default: 3)",
    )  # fmt: skip
    tracing.add_argument("--framework", metavar="F", help="whose constants price it (default: what the code uses)")
    tracing.add_argument(
        "--fail-on", metavar="KINDS", help="leave with code 1 if there are such faults: any, or some kinds with commas",
    )  # fmt: skip
    tracing.add_argument("--better", action="store_true", help="search for a faster plan of the model that the code trains")
    tracing.add_argument("--model", metavar="M", help="what it trains, where the code doesn't say")
    tracing.add_argument("--links", action="store_true", help="play the step on every rank: the load of each kind of link")
    add_calibration(tracing)
    output = add_output(tracing)
    output.add_argument("--save", metavar="FILE", help="the trace, as .npz")
    output.add_argument("--perfetto", metavar="FILE", help="a trace that ui.perfetto.dev opens")
    tracing.set_defaults(run=_trace, notes=[])


def _trace(arguments: argparse.Namespace) -> int:
    from costmodel.traces.faults import faults_of
    from costmodel.traces.memory import memory_of_trace
    from costmodel.traces.playback import play_cluster
    from costmodel.traces.pricing import price_trace

    fatal = _fatal(arguments.fail_on)
    cluster = with_calibration(arguments, sized_cluster(arguments))
    trace, cluster = _traced(arguments, cluster)
    files = []
    if arguments.save:
        trace.save(arguments.save)
        files.append(f"{arguments.save} (the trace)")
    priced = price_trace(trace, cluster, arguments.framework)
    if arguments.calibration is not None:
        arguments.framework = priced.framework.name
        calibrated_software(argparse.Namespace(**{**vars(arguments), "given": {"framework"}}), arguments.framework)
    memory = [memory_of_trace(trace, cluster, priced.framework, rank=role.rank) for role in trace.roles]
    faults = faults_of(trace, cluster, priced.framework, estimate=priced)
    files += perfetto_file(arguments.perfetto, priced)
    plan = _AsPlan.of(trace, cluster, arguments.model, arguments.better)
    played = play_cluster(trace, cluster, estimate=priced) if arguments.links else None
    if arguments.json:
        print_json(_document(trace, priced, memory, faults) | plan.to_dict() | _links(played))
    else:
        shown = _page(trace, priced, memory, faults)
        more = [plan.lines(), "" if played is None else repr(played)]
        print_page(*shown[:3], *more, *shown[3:], written(*files), markdown=arguments.markdown)
    return codes.NOTHING_FITS if any(fault.kind in fatal for fault in faults) else codes.ANSWERED


class _AsPlan(NamedTuple):
    """A trace as a plan of the library, what the formulas say of it, better ones where asked for; or why it is none."""

    seen: Recognised | None
    answer: Estimate | None
    better: SearchResult | None
    refusal: str = ""

    @classmethod
    def of(cls, trace: Trace, cluster: Cluster, model: str | None, searched: bool) -> _AsPlan:
        """See a plan in a trace."""
        from costmodel.traces.recognition import recognise

        known = None if model is None else loader.load_model(model)
        if known is None and "model" not in trace.facts:
            return cls(None, None, None, UNNAMED)
        try:
            seen = recognise(trace, known)
            answer = seen.estimate(cluster)
        except (NotModelled, IllegalPlan, InvalidValue) as refused:  # code may train what no plan of the library does
            return cls(None, None, None, str(refused))
        return cls(seen, answer, seen.better(cluster) if searched else None)

    def lines(self) -> str:
        """It in words."""
        if self.seen is None or self.answer is None:
            return f"Not seen as a plan: {self.refusal}"
        head = f"As a plan: {self.seen.model.name} by {self.seen.framework}, {whole_plan(self.answer)}"
        return "\n".join([head, *self.seen.notes, *self._gain(self.answer)])

    def _gain(self, answer: Estimate) -> list[str]:
        if self.better is None:
            return []
        if not self.better.ranked:
            return [f"Better: nothing, as {self.better.why_none()}"]
        now, best = answer.step_time, self.better.best
        if best.step_time >= now:
            return ["Better: none found by the formulas"]
        return [
            f"Better: {whole_plan(best)}: {format_seconds(best.step_time)}, where the formulas have {format_seconds(now)} for "
            f"this one ({100 * (1 - best.step_time / now):.0f} % less)"
        ]

    def to_dict(self) -> dict[str, object]:
        """It for JSON."""
        if self.seen is None or self.answer is None:
            return {"plan": None, "no_plan": self.refusal}
        found: dict[str, object] = {"plan": self.answer.to_dict(), "plan_framework": self.seen.framework}
        if self.better is not None and self.better.ranked:
            found["better"] = self.better.best.to_dict()
        return found


def _links(played: TracePlayback | None) -> dict[str, object]:
    if played is None:
        return {}
    return {"played_step_time_s": played.total, "links": [
        {"rank": one.rank, "level": one.level, "bytes": one.nbytes, "busy": one.busy, "peak_rate_bytes_per_s": one.peak_rate}
        for one in played.loads
    ]}  # fmt: skip


def _fatal(words: str | None) -> set[str]:
    """Kinds of faults that fail the command."""
    from costmodel.traces.faults import KINDS

    if not words:
        return set()
    if words == "any":
        return set(KINDS)
    kinds = {word.strip().replace("-", " ") for word in words.split(",")}
    unknown = sorted(kinds - {*KINDS, *TOGETHER})
    if unknown:
        known = ", ".join(kind.replace(" ", "-") for kind in (*TOGETHER, *KINDS))
        raise Misused(f"--fail-on {unknown[0]}: expected any, or some of {known}")
    return {kind for word in kinds for kind in TOGETHER.get(word, (word,))}


def _traced(arguments: argparse.Namespace, cluster: Cluster) -> tuple[Trace, Cluster]:
    """The trace, and as many of the cluster's GPUs as it has ranks."""
    from costmodel.traces.record import Trace
    from costmodel.traces.running import trace_script

    if arguments.script.endswith(".npz"):
        trace = Trace.load(arguments.script)
    else:
        trace = trace_script(
            arguments.script, arguments.arguments, module=arguments.module, cluster=cluster, gpus=gpus_of(arguments, cluster),
            roles=arguments.roles, steps=arguments.steps,
        )  # fmt: skip
    return trace, cluster.with_gpus(trace.world_size)


def _document(trace: Trace, priced: TraceEstimate, memory: list[TraceMemory], faults: tuple[Fault, ...]) -> dict[str, object]:
    low, high = priced.interval
    return {
        "world_size": trace.world_size,
        "cluster": priced.cluster.name,
        "framework": priced.framework.name,
        "step_time_s": priced.step_time,
        "step_time_low_s": low,
        "step_time_high_s": high,
        "exposed_communication_s": priced.exposed_communication,
        "mfu": priced.mfu,
        "uneven_steps": priced.uneven,
        "roles": [
            {
                "rank": held.rank, "ranks": len(role.stands_for), "kernels": len(role.kernels),
                "transactions": len(role.transactions), "allocated_bytes": held.allocated, "reserved_bytes": held.reserved,
                "process_bytes": held.process, "fits": held.fits, "by_kind_bytes": held.by_kind,
            }
            for role, held in zip(trace.roles, memory, strict=True)
        ],
        "faults": [
            {
                "kind": fault.kind, "rank": fault.rank, "module": fault.module, "line": fault.line, "sentence": fault.sentence,
                "seconds": fault.seconds, "bytes": fault.bytes,
            }
            for fault in faults
        ],
        "values_assumed": list(trace.values_assumed),
        "versions": trace.versions,
    }


def _ran(trace: Trace) -> str:
    """Packages that ran, whose releases decide what is held."""
    return ", ".join(f"{name} {version}" for name, version in trace.versions.items())


def _of_another_time(trace: Trace, framework: Framework) -> list[str]:
    """What is taken where constants of a framework as it once was price code that ran with today's packages."""
    month = asked(framework.name).month
    if not month or not trace.versions:
        return []
    return [
        f"It does what {_ran(trace)} do, which are installed, and is priced as {framework.name}: trace it where releases of "
        f"{month} are installed to see what those did."
    ]


def _page(trace: Trace, priced: TraceEstimate, memory: list[TraceMemory], faults: tuple[Fault, ...]) -> list[TerminalTable | str]:
    low, high = priced.interval
    head = (
        f"{trace.facts.get('command', 'A trace')} on {counted(trace.world_size, 'GPU')} of {priced.cluster.name}, "
        f"priced as {priced.framework.name}\n"
        f"Step: {format_seconds(priced.step_time)} ({format_seconds(low)} to {format_seconds(high)}), "
        f"MFU {share(priced.mfu, 1.0)}"
    ) + (f"\n{priced.uneven}" if priced.uneven else "")
    if trace.versions:
        head += f"\nRan with {_ran(trace)}"
    rows = []
    for place, (role, held) in enumerate(zip(trace.roles, memory, strict=True)):
        parts = priced.parts(place)
        rows.append(
            (
                str(role.rank), f"{len(role.stands_for):,}", format_seconds(parts.computing), format_seconds(parts.exchanging),
                format_seconds(parts.idle), f"{gib(held.allocated)} GiB", f"{gib(held.reserved)} GiB",
                "yes" if held.fits else "no",
            )
        )
    fullest = max(memory, key=lambda one: one.allocated)
    kinds = ", ".join(
        f"{kind} {format_bytes(nbytes)}" for kind, nbytes in sorted(fullest.by_kind.items(), key=lambda item: -item[1]) if nbytes
    )
    assumed = [*_of_another_time(trace, priced.framework), *trace.values_assumed]
    more = [f"... and {len(assumed) - ASSUMED} more"] if len(assumed) > ASSUMED else []
    return [
        head, table(["role", "ranks", "computes", "exchanges", "idle", "allocated", "reserved", "fits"], rows),
        f"Memory at the peak: {kinds}" + "".join(f"\n{word}" for word in (*fullest.warnings, *fullest.helps)),
        "Faults:\n" + "\n".join(map(repr, faults)) if faults else "No fault found.",
        "Assumed:\n" + "\n".join([*assumed[:ASSUMED], *more]) if assumed else "",
    ]  # fmt: skip
