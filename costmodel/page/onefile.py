"""One HTML file that answers, searches and draws by itself."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path

from costmodel.arithmetic.named_tuples import made
from costmodel.catalogue.asking import ModelLike, asked_search, hardware_of
from costmodel.catalogue.clusters import ClusterLike
from costmodel.catalogue.keywords import by_other_names
from costmodel.catalogue.software import framework_on
from costmodel.description.dimensions import DIMENSIONS, RANK_ORDER, WRITTEN
from costmodel.description.fields import table
from costmodel.description.framework import OF_EXPERTS, Framework
from costmodel.description.labels import TIED, asked, glossary, label, part_name, spoken, spoken_of
from costmodel.description.plan import FOLLOWING, Plan
from costmodel.evaluation.estimation import TIME_PARTS, estimate, of_limit
from costmodel.evaluation.memory_breakdown import PARTS as MEMORY_PARTS
from costmodel.evaluation.offers import Offer, offers
from costmodel.evaluation.twins import TWIN
from costmodel.page.data import embedded, script, static, style, timeline_script
from costmodel.page.plans import Candidates, candidates, columns
from costmodel.page.question import Fields, PageQuestion, unasked
from costmodel.page.schedules import orders
from costmodel.page.sliders import sliders
from costmodel.text.checks import real
from costmodel.text.errors import InvalidValue
from costmodel.text.results import fitted
from costmodel.text.units import counted, format_seconds
from costmodel.text.version import __version__

PRICE = 2.5
"""Of a GPU-hour, where none is given: something to drag."""


SEQUENCES, SEQ_LEN = 8, 4096
"""A GPU's share of the batch, and tokens of a sequence, where neither is given: something to start from."""


@dataclasses.dataclass(frozen=True, repr=False)
class WhatIf:
    """A question that can be changed: as a page, as sliders in a notebook, or field by field.

    Parameters
    ----------
    question : model, cluster, framework and the plan as asked; what nobody asked is as `Plan` has it
    candidates : plans to search among
    price : of a GPU-hour
    asked : ``global_batch``, ``seq_len`` and dimensions, as `costmodel.search` takes them
    command : that makes the page anew

    Examples
    --------
    >>> import costmodel
    >>> model, cluster = costmodel.load_model("llama3-8b"), costmodel.load_cluster("dgx-h100", gpus=8)
    >>> what = costmodel.whatif(model, cluster, global_batch=64, seq_len=4096, tensor_parallel=2)
    >>> slower = what.evaluate({"nvlink.bandwidth": 100e9})["step_time_s"]
    >>> slower > what.evaluate()["step_time_s"]
    True
    """

    question: PageQuestion
    candidates: Candidates = dataclasses.field(hash=False)
    price: float
    asked: dict[str, object] = dataclasses.field(hash=False)
    command: str = ""

    def __repr__(self) -> str:
        model, cluster, framework, plan, _ = self.question
        legal = self.candidates.found.evaluated
        return fitted(
            f"WhatIf({asked(model, cluster, framework, work=(plan.global_batch, plan.seq_len))}, "
            f"{self.candidates.first.step_time:.4g} s by the best of {counted(legal, 'legal plan')})"
        )

    def _ipython_display_(self) -> None:
        """Sliders where ``ipywidgets`` is there, else how to get them."""
        from IPython.display import display

        try:
            shown = self.widget()
        except ImportError as missing:
            display({"text/plain": f"{self!r}\n(sliders need `pip install costmodel[notebook]`: {missing})"}, raw=True)
        else:
            display(shown)

    def widget(self) -> object:
        """Sliders over a figure, for a notebook (extra ``notebook``).

        Raises
        ------
        ImportError
            where ``ipywidgets`` or ``anywidget`` is not installed
        """
        made: object = import_module("costmodel.page.widget").widget(self)  # widgets know pages, not the reverse
        return made

    def evaluate(self, changes: Fields | None = None) -> dict[str, object]:
        """Time and memory with other values in some fields, as ``window.costmodel.evaluate`` of the page gives them.

        Parameters
        ----------
        changes : by field: those of `Plan` by their names, ``LEVEL.bandwidth`` [bytes/s] and ``LEVEL.latency`` [s] by the
            names of the cluster's levels, ``device.memory`` [bytes], ``device.memory_bandwidth`` [bytes/s], ...

        Returns
        -------
        dict
            ``step_time_s``, ``peak_memory_bytes`` and ``parts`` [s]

        Raises
        ------
        InvalidValue
            for an unknown field or a value that it can't have
        IllegalPlan
            with the reason, where the plan can't run
        """
        asked = self.question.changed(changes or {})
        found = estimate(asked.model, asked.cluster, asked.plan, asked.framework)
        return {"step_time_s": found.step_time, "peak_memory_bytes": found.needed_memory, "parts": found.times}

    def html(self) -> str:
        """The page: one file without a request, of some five megabytes."""
        from costmodel.plots.embedded import plotly_script

        model = script(self.question, self.price, self.candidates.plans)
        return self.filled({
            "brand": "costmodel", "said": "", "style": f"<style>{style()}</style>",
            "plotly": f'<script id="plotly">{plotly_script()}</script>',
            "model": f'<script id="model">"use strict";\nconst costmodel = {model};\n</script>',
            "timeline": f'<script>"use strict";\nconst timelineOf = {timeline_script()};\n</script>',
            "charts": f"<script>{static('charts.js')}</script>", "page": f"<script>{static('page.js')}</script>",
        })  # fmt: skip

    def filled(self, elements: Mapping[str, str]) -> str:
        """The page, of elements that hold what it shares with others, or name the files that do.

        Parameters
        ----------
        elements : by the names of their places in ``page.html``
        """
        title = f"{self.question.model.name} on {self.question.cluster.gpus} GPUs of {self.question.cluster.name}: what if"
        return filled({
            **elements, "title": html.escape(title), "view": embedded(self._view()),
            "orders": embedded(orders(self.question, self.candidates.plans)),
        })  # fmt: skip

    def write_html(self, path: str | Path) -> None:
        """Write the page.

        Parameters
        ----------
        path : of the file; written whole or not at all
        """
        target, text = Path(path), self.html()
        partial = target.with_name(f".{target.name}.partial")
        try:
            partial.write_text(text, encoding="utf-8")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def _view(self) -> dict[str, object]:
        """What the page shows beside the model: the plans, what was asked, how sure it is."""
        from costmodel.plots import embedded as drawn

        model, cluster, framework, plan, _ = self.question
        first, found = self.candidates.first, self.candidates.found
        place = {one: row for row, one in enumerate(self.candidates.plans)}
        return {
            **looks(), "command": self.command, "asked": asked(model, cluster, framework, work=(plan.global_batch, plan.seq_len)),
            "facts": {
                "Model": {"model": model.name, "parameters": f"{model.parameters / 1e9:,.1f} billion",
                          "sequence": f"{plan.seq_len:,} tokens", "global batch": f"{plan.global_batch:,} sequences"},
                "Cluster": {"cluster": cluster.name, "GPUs": f"{cluster.gpus:,}",
                            "GPU": cluster.device.title or cluster.device.name, "framework": framework.name},
            },
            "columns": columns(self.candidates.plans, self.question.fields()),
            "plans": len(self.candidates.plans), "legal": found.evaluated, "fitting": found.fitting,
            "ranking": [
                {"row": place[one.plan], "fastest": standing.probability_fastest, "either": either,
                 "tied": standing.tied and standing is not found.standings.plans[0],
                 "error": one.time_error.half, "unknown": one.widest_unknown}
                for one, standing, either in zip(found.ranked, found.standings.plans, found.alternatives, strict=True)
            ],
            "offers": offered_cells(offers(found)), "none": "" if found.ranked else found.why_none(),
            "margin": first.spread.margin(first.required_probability),
            "error": first.time_error.half, "shift": first.time_error.shift,
            "runs": first.spread.rows, "calibrated": first.spread.calibrated,
            "utilisation": first.mfu * first.step_time / first.step.model_flop,
            "price": self.price, "gpus": cluster.gpus, "tokens": plan.tokens,
            "sliders": [slider._asdict() for slider in sliders(self.question, self.price)],
            "titles": {"time": drawn.breakdown_title(model.name, cluster),
                       "frontier": drawn.frontier_title(model.name, cluster, found.evaluated)},
        }  # fmt: skip


def filled(elements: Mapping[str, str]) -> str:
    """The page's frame, its places filled.

    Parameters
    ----------
    elements : by the names of their places in ``page.html``, but for the search, which is the same in all
    """
    texts = {**elements, "worker": static("worker.js")}
    parts = re.split("<!--([a-z]+)-->", static("page.html"))
    return "".join(texts[part] if place % 2 else part for place, part in enumerate(parts))


def offered_cells(offered: Iterable[Offer]) -> list[list[str]]:
    """Of changes with which a plan would fit, what a page's table says.

    Parameters
    ----------
    offered : as `costmodel.evaluation.offers.offers` gives them
    """
    return [
        [spoken(one.change), f"{one.best.plan.gpus:,}", format_seconds(one.best.step_time),
         f"{one.best.tokens_per_second / one.best.plan.gpus:,.0f}", of_limit(one.best), label(one.best.plan)]
        for one in offered
    ]  # fmt: skip


def looks() -> dict[str, object]:
    """What a page shows whatever is asked: words, colours, the charts' specification."""
    from costmodel.plots import embedded as drawn

    return {
        "version": __version__,
        "words": {
            "degrees": [(one.field, one.short) for one in WRITTEN], "experts": OF_EXPERTS,
            "said": [(row.name, row.usual, row.said) for row in spoken_of()],
            "ranks": {one.column: one.short for one in DIMENSIONS}, "twin": TWIN, "tied": TIED, "glossary": glossary(),
        },
        "time": {part: drawn.TIME_LOOKS[part] for part in TIME_PARTS}, "memory": drawn.memory_looks(MEMORY_PARTS),
        "charts": drawn.CHARTS, "series": drawn.SERIES, "rules": drawn.RULES, "passes": drawn.pass_looks(),
        "names": {row.name: row.called for row in table(Plan).values() if row.called}
        | {part: part_name(part) for part in TIME_PARTS},
    }  # fmt: skip


@by_other_names()
def whatif(
    model: ModelLike, cluster: ClusterLike | None = None, *, global_batch: int | None = None, seq_len: int = SEQ_LEN,
    framework: Framework | str | None = None, price: float = PRICE, command: str = "", **dimensions: object,
) -> WhatIf:  # fmt: skip
    """Something to drag: the best plan of a search, and what becomes of it as bandwidths, memory or efficiencies change.

    Parameters
    ----------
    model, cluster : what is trained, on what, or their names, as ``"llama3-8b"`` and ``"8xh100"``
    global_batch : sequences per step; `SEQUENCES` for each GPU if not given
    seq_len : [tokens]
    framework : the software, or its name in the catalogue; as of `costmodel.search` if None
    price : of a GPU-hour, in any currency
    command : that makes the page anew, for its foot
    dimensions : any field of `Plan`, fixed to a value or tried over a list, as `costmodel.search` takes them, and hardware, as
        ``gpus=8``

    Returns
    -------
    WhatIf

    Raises
    ------
    InvalidValue
        for an unknown dimension or a bad value
    IllegalPlan
        where no plan is legal
    """
    on, said = hardware_of(cluster, {**dimensions, "global_batch": global_batch, "seq_len": seq_len})
    said.setdefault("global_batch", SEQUENCES * int(on.gpus or 1))
    named = asked_search(model, on, framework, said)
    real("price", price, 0.0, 1e6)
    if not isinstance(command, str):
        raise InvalidValue("command", command, "a text")
    software = framework_on(on, named.framework)
    asked = {**named.work, **named.dimensions}
    found = candidates(named.model, on, software, **asked)
    plan, fixed = _asked(found.first.plan, named.dimensions)
    follows = () if FOLLOWING in fixed else (FOLLOWING,)
    question = PageQuestion(named.model, on, software, plan.on(on), (*unasked(fixed), *follows))
    return WhatIf(question, found, float(price), asked, command)


def _asked(best: Plan, dimensions: dict[str, object]) -> tuple[Plan, set[str]]:
    """The plan as asked, and the fields that were named; of those that were to be tried at several values, the best's."""
    given = {}
    for name, value in dimensions.items():
        listed = isinstance(value, list | tuple) and sorted(map(str, value)) != sorted(RANK_ORDER)
        values = list(value) if isinstance(value, list | tuple) and listed else [value]
        if values != [None]:
            given[name] = values[0] if len(values) == 1 else getattr(best, name)
    return made(Plan, {"global_batch": best.global_batch, "seq_len": best.seq_len, **given}), set(given)
