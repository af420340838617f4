"""Settings that a vendor's published recipes have and its tables of results leave out, joined by model, machine and plan."""

from __future__ import annotations

import csv
import dataclasses
import functools
import itertools
import json
import re
from pathlib import Path

from calibration.data.reference import DEFAULT_FOLDER
from calibration.data.runs import Run
from costmodel.description.graphs import of_scopes
from costmodel.interop.launchers.dialects import megatron

FOLDER = "recipes"
"""Of the reference folder: a file for each source of runs, of the same name."""
DEVICES = {"H100": "h100-sxm", "B200": "b200-sxm", "B300": "b300-sxm", "GB200": "gb200", "GB300": "gb300"}
DTYPES = {"bf16": "bf16", "fp8cs": "fp8", "fp8ds": "fp8", "fp8mx": "mxfp8", "nvfp4": "nvfp4"}
"""Precisions of Megatron-Bridge: 8 bit with current or delayed scales, or in blocks."""
RELEASES = Path(__file__).with_name("releases.csv")
"""Settings of containers of Megatron-Bridge where they aren't those of the recipes, which are of one release: in the recipes'
words, each with its files and lines in NVIDIA-NeMo/Megatron-Bridge at the release's tag. The first line that fits a row holds;
degrees that it leaves open are any. What a line with a text in ``refused`` measured says nothing of the plan that a row states.

Container 25.09 is v0.1.0rc4, 25.11 v0.2.0, 26.02 v0.3.0, 26.02.01 v0.3.1, 26.04 v0.4.0, 26.04.01 v0.4.2, 26.06 v0.5.0, 26.06.01
v0.5.1, 26.08 v0.6.0.
"""
TASKS = {"sft": "[sft]", "peft": "[lora]"}
CAPTURED = re.compile(r"full_iteration|transformer_engine\W*$")
"""CUDA graphs of all that a layer does."""
PARTLY = re.compile(r"(?:transformer_engine|local) \[(.*)\]")
"""Those of some of its modules, which leave the rest to the host."""
CAPTURED_FROM = "25.11"
"""Container whose recipes first capture modules around experts."""
FUSED_FROM = "26.06"
"""Container whose recipes first fuse experts, capture all of an iteration with them and overlap their tokens' way."""
OVERLAPPED = re.compile(r'high_priority_a2a_comm_stream"?[:=] ?true')
"""Of a recipe whose tokens have a stream of their own: it overlaps them in a call, whose arguments the file of recipes leaves out
(NVIDIA-NeMo/Megatron-Bridge@067f987df0 src/megatron/bridge/perf_recipes/qwen/common.py:50, 58)."""
DEGREES = ("tp", "pp", "cp", "vpp", "ep")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a recipe says beside the degrees of its plan.

    Parameters
    ----------
    recompute : modules of every layer, with a plus between them; empty: none
    whole_layers : of each chunk of a pipeline that are computed again, the first ones (``--recompute-method block``)
    dispatcher : of tokens to their experts, in the recipe's words
    cuda_graphs : a layer is launched as one graph
    graph_modules : those of its modules that are, where it isn't whole
    fused_experts : bias, activation and cast of experts are fused into their products
    overlap_experts : tokens travel beside another micro-batch's work
    overlap_tensor : exchange of tensor parallelism beside products; None where the recipe leaves it to the framework
    sequence_parallel : activations between products split over tensor ranks; None where the recipe leaves it to the framework
    virtual_stages : model chunks on a rank of a pipeline
    refused : why a run of it says nothing of its plan; empty: it does
    """

    recompute: str = ""
    whole_layers: int = 0
    dispatcher: str = ""
    cuda_graphs: bool = False
    graph_modules: str = ""
    fused_experts: bool = False
    overlap_experts: bool = False
    overlap_tensor: bool | None = None
    sequence_parallel: bool | None = None
    virtual_stages: int = 1
    refused: str = ""


NOTHING = Recipe()
LAUNCHER = ("NeMo 24.07", "NeMo Framework Launcher")
"""Releases whose runs NeMo's launcher starts, as rows name them."""
LAUNCHED = {
    ("gpt3175b", ""): Recipe(virtual_stages=6), ("nemotron22b", ""): Recipe(virtual_stages=10),
    ("llama213b", ""): Recipe(virtual_stages=10), ("llama270b", ""): Recipe(virtual_stages=5),
    ("llama370b", ""): Recipe(virtual_stages=5), ("llama213b", "[sft]"): Recipe(virtual_stages=10),
    ("llama270b", "[sft]"): Recipe(virtual_stages=20), ("llama270b", "[lora]"): Recipe(sequence_parallel=False),
}  # fmt: skip
"""What the tables of NeMo's containers 24.05 and 24.07 leave out of what their scripts run, by model and task (NVIDIA/
NeMo-Framework-Launcher@26e42fa launcher_scripts/conf/training/{gpt3,nemotron,llama}, conf/peft/llama/sft.yaml and
examples/peft/llama/h100/{13b_1node,70b_2node,70b_1node_lora}.sh)."""
Key = tuple[str, ...]


def _model(name: str) -> str:
    """Name of a model without spaces, case and what it is trained for.

    Examples
    --------
    >>> _model("LLAMA3_70B [SFT]"), _model("GPT OSS 120B")
    ('llama370b', 'gptoss120b')
    """
    return re.sub(r"\[.*?\]|\(.*?\)|[\s_-]", "", name.lower())


def _degrees(row: dict[str, str]) -> Key:
    return (*(row[name] or "1" for name in DEGREES), row["micro_batch"])


def _recipe(row: dict[str, str]) -> Recipe:
    named = json.loads(row["recompute_modules"] or "[]")
    graphs = "" if row["cuda_graph"].startswith("none") else row["cuda_graph"].replace("[]", "")  # "none" beside modules, too
    partly = PARTLY.match(graphs)
    settings = row["all_settings"].lower()
    blocks = row["recompute_granularity"] == "full" and re.search(r'recompute_method"?[:=] ?"?block', settings) is not None
    apart = re.search(r'tp_comm_overlap"?[:=] ?false', settings) is not None
    return Recipe(
        recompute=megatron.modules(named) if row["recompute_granularity"] == "selective" else "",
        whole_layers=int(row["recompute_num_layers"]) if blocks else 0,
        dispatcher=row["moe_dispatcher"].lower(), cuda_graphs=CAPTURED.search(graphs) is not None,
        graph_modules=of_scopes(re.findall(r"\w+", partly[1] if partly else "")),
        fused_experts=re.search(r'op_fuser"?[:=] ?true', settings) is not None,
        overlap_experts=row["a2a_overlap"] == "True" or OVERLAPPED.search(settings) is not None,
        overlap_tensor=False if apart else None, refused=row.get("refused", ""),
    )  # fmt: skip


@functools.cache
def _recipes(path: Path) -> dict[Key, Recipe]:
    """Recipes of one file by what they train, on what, and how it is split; of those that contradict each other none."""
    if not path.is_file():
        return {}
    found: dict[Key, Recipe | None] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["gpu"] in DEVICES and row["precision"] in DTYPES:
                task = TASKS.get(row["task"], "")
                key = (_model(row["model"]), task, DEVICES[row["gpu"]], row["n_gpus"], DTYPES[row["precision"]], *_degrees(row))
                recipe = _recipe(row)
                found[key] = recipe if found.get(key, recipe) == recipe else None
    return {key: recipe for key, recipe in found.items() if recipe is not None}


@functools.cache
def _released() -> dict[Key, list[tuple[dict[str, str], Recipe]]]:
    """What releases have by source, release, model, task, device and dtype: the degrees that a line states, and its settings."""
    found: dict[Key, list[tuple[dict[str, str], Recipe]]] = {}
    with RELEASES.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            stated = {name: row[name] for name in (*DEGREES, "micro_batch") if row.get(name)}
            kinds = itertools.product(*(row[name].split() for name in ("releases", "gpu", "precision")))
            for release, device, dtype in kinds:
                key = (row["dataset"], release, _model(row["model"]), TASKS.get(row["task"], ""), DEVICES[device], DTYPES[dtype])
                found.setdefault(key, []).append((stated, _recipe(row)))
    return found


@functools.cache
def _graphs(path: Path) -> dict[Key, tuple[bool, str]]:
    """Graphs on which all recipes of a model on a device in a precision agree, whatever their plan."""
    found: dict[Key, set[tuple[bool, str]]] = {}
    for key, recipe in _recipes(path).items():
        model, task, device, _, dtype, *_ = key
        found.setdefault((model, task, device, dtype), set()).add((recipe.cuda_graphs, recipe.graph_modules))
    return {key: next(iter(graphs)) for key, graphs in found.items() if len(graphs) == 1}


def graphs_of(run: Run, folder: Path | None = None) -> tuple[bool, str]:
    """Whether a layer of a row is launched as a graph, and of what modules if not of all, as recipes have it.

    Its own release's or recipe's, else what those of its model agree on, on its device in its precision; from container 25.11 on
    (NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs: v0.2.0 first captures modules of mixtures of experts).

    Parameters
    ----------
    run, folder : as of `recipe_of`
    """
    own, text = recipe_of(run, folder), run.text
    if run.number.get("n_experts", 0.0) > 0.0 and _of_release(run) is None:
        if _release(run) < CAPTURED_FROM:
            return False, ""
        if own == NOTHING:
            model = _model(text["model_name"]), "", text["gpu_id"], text["compute_dtype"]
            return _graphs(_path(run, folder)).get(model, (False, ""))
    return own.cuda_graphs, own.graph_modules


def _path(run: Run, folder: Path | None) -> Path:
    """File of the recipes of a row's source."""
    return (folder or DEFAULT_FOLDER) / FOLDER / f"{run.text['dataset']}.csv"


def _release(run: Run) -> str:
    """Container of Megatron-Bridge that a row names; empty where it names none."""
    named = re.match(r"Megatron-Bridge (\d[\d.]*)", run.text["framework"])
    return named[1] if named else ""


def _task(run: Run) -> str:
    return next((word for word in TASKS.values() if word in run.text["model_name"].lower()), "")


def _of_release(run: Run) -> Recipe | None:
    """What a row's release had for its model on its device; None where `RELEASES` doesn't say."""
    text = run.text
    key = (text["dataset"], _release(run), _model(text["model_name"]), _task(run), text["gpu_id"], text["compute_dtype"])
    plan = dict(zip((*DEGREES, "micro_batch"), _degrees(text), strict=True))
    return next((recipe for stated, recipe in _released().get(key, ()) if stated.items() <= plan.items()), None)


def _before_fusing(recipe: Recipe) -> Recipe:
    """What releases had that fused no experts where the recipe does: no more than the router can be captured, nothing overlaps.

    NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs: v0.4.2, of container 26.04.01, fuses none, v0.5.0, of 26.06, does.
    """
    modules = "router" if recipe.cuda_graphs else recipe.graph_modules
    return dataclasses.replace(recipe, fused_experts=False, overlap_experts=False, cuda_graphs=False, graph_modules=modules)


def recipe_of(run: Run, folder: Path | None = None) -> Recipe:
    """The recipe that a row ran; `NOTHING` where none has its model, machine and plan.

    What its own release had comes first. Recipes are of one release, rows of several: where a plan is the same it is taken for
    the same recipe, but for experts of releases that didn't fuse them.

    Parameters
    ----------
    run : a row
    folder : reference folder with a folder `recipes`; the optional one beside the checkout if not given
    """
    text = run.text
    if text["framework"].startswith(LAUNCHER):
        return LAUNCHED.get((_model(text["model_name"]), _task(run)), NOTHING)
    if not text["framework"].startswith("Megatron-Bridge"):
        return NOTHING
    said = _of_release(run)
    if said is not None:
        return said
    key = (_model(text["model_name"]), _task(run), text["gpu_id"], text["n_gpus"], text["compute_dtype"], *_degrees(text))
    recipe = _recipes(_path(run, folder)).get(key, NOTHING)
    return _before_fusing(recipe) if recipe.fused_experts and _release(run) < FUSED_FROM else recipe
