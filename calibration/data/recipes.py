"""Settings that a vendor's published recipes have and its tables of results leave out, joined by model, machine and plan."""

from __future__ import annotations

import csv
import dataclasses
import functools
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
TASKS = {"sft": "[sft]", "peft": "[lora]"}
CAPTURED = re.compile(r"full_iteration|transformer_engine\W*$")
"""CUDA graphs of all that a layer does."""
PARTLY = re.compile(r"(?:transformer_engine|local) \[(.*)\]")
"""Those of some of its modules, which leave the rest to the host."""
CAPTURED_FROM = "25.11"
"""Container whose recipes first capture modules around experts."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a recipe says beside the degrees of its plan.

    Parameters
    ----------
    recompute : modules of every layer, with a plus between them; empty: none
    dispatcher : of tokens to their experts, in the recipe's words
    cuda_graphs : a layer is launched as one graph
    graph_modules : those of its modules that are, where it isn't whole
    fused_experts : bias, activation and cast of experts are fused into their products
    overlap_experts : tokens travel beside another micro-batch's work
    overlap_tensor : exchange of tensor parallelism beside products; None where the recipe leaves it to the framework
    """

    recompute: str = ""
    dispatcher: str = ""
    cuda_graphs: bool = False
    graph_modules: str = ""
    fused_experts: bool = False
    overlap_experts: bool = False
    overlap_tensor: bool | None = None


NOTHING = Recipe()
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
    return (*(row[name] or "1" for name in ("tp", "pp", "cp", "vpp", "ep")), row["micro_batch"])


def _recipe(row: dict[str, str]) -> Recipe:
    named = json.loads(row["recompute_modules"] or "[]")
    partly = PARTLY.match(row["cuda_graph"])
    settings = row["all_settings"]
    apart = re.search(r'tp_comm_overlap"?[:=] ?false', settings.lower()) is not None
    return Recipe(
        recompute=megatron.modules(named) if row["recompute_granularity"] == "selective" else "",
        dispatcher=row["moe_dispatcher"].lower(), cuda_graphs=CAPTURED.search(row["cuda_graph"].replace("[]", "")) is not None,
        graph_modules=of_scopes(re.findall(r"\w+", partly[1] if partly else "")),
        fused_experts=re.search(r'op_fuser"?[:=] ?true', settings.lower()) is not None,
        overlap_experts=row["a2a_overlap"] == "True", overlap_tensor=False if apart else None,
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
def _graphs(path: Path) -> dict[Key, tuple[bool, str]]:
    """Graphs on which all recipes of a model on a device in a precision agree, whatever their plan."""
    found: dict[Key, set[tuple[bool, str]]] = {}
    for key, recipe in _recipes(path).items():
        model, task, device, _, dtype, *_ = key
        found.setdefault((model, task, device, dtype), set()).add((recipe.cuda_graphs, recipe.graph_modules))
    return {key: next(iter(graphs)) for key, graphs in found.items() if len(graphs) == 1}


def graphs_of(run: Run, folder: Path | None = None) -> tuple[bool, str]:
    """Whether a layer of a row is launched as a graph, and of what modules if not of all, as recipes have it.

    Its own recipe's, else what those of its model agree on, on its device in its precision; from container 25.11 on
    (NVIDIA-NeMo/Megatron-Bridge scripts/performance/configs: v0.2.0 first captures modules of mixtures of experts).

    Parameters
    ----------
    run, folder : as of `recipe_of`
    """
    own, text = recipe_of(run, folder), run.text
    release = re.search(r"Megatron-Bridge (\d+\.\d+)", text["framework"])
    experts = run.number.get("n_experts", 0.0) > 0.0
    if experts and (release is None or release[1] < CAPTURED_FROM):
        return False, ""
    if not experts or own != NOTHING:
        return own.cuda_graphs, own.graph_modules
    model = _model(text["model_name"]), "", text["gpu_id"], text["compute_dtype"]
    return _graphs(_path(run, folder)).get(model, (False, ""))


def _path(run: Run, folder: Path | None) -> Path:
    """File of the recipes of a row's source."""
    return (folder or DEFAULT_FOLDER) / FOLDER / f"{run.text['dataset']}.csv"


def recipe_of(run: Run, folder: Path | None = None) -> Recipe:
    """The recipe that a row ran; `NOTHING` where none has its model, machine and plan.

    Recipes are of one release, rows of several: where a plan is the same it is taken for the same recipe.

    Parameters
    ----------
    run : a row
    folder : reference folder with a folder `recipes`; the optional one beside the checkout if not given
    """
    text = run.text
    if not text["framework"].startswith("Megatron-Bridge"):
        return NOTHING
    task = next((word for word in TASKS.values() if word in text["model_name"].lower()), "")
    key = (_model(text["model_name"]), task, text["gpu_id"], text["n_gpus"], text["compute_dtype"], *_degrees(text))
    return _recipes(_path(run, folder)).get(key, NOTHING)
