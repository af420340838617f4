"""The book: notebooks run from top to bottom and saved with their outputs, a static image beside each Plotly figure."""

from __future__ import annotations

import base64
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

from costmodel.plots.page import HEIGHT, WIDTH

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
PLOTLY, IMAGE = "application/vnd.plotly.v1+json", "image/png"
LARGEST = 50_000
"""Characters of an output besides its image; a figure with more is kept as its image alone."""
SECONDS = 600
SCALE, COLOURS = 1.2, 128
"""Pixels of an image for each of the figure, and how many colours it keeps: a third of the bytes."""


def chapters(chosen: Sequence[Path] = ()) -> list[Path]:
    """Notebooks of the book: those chosen, else all."""
    return list(chosen) or sorted(NOTEBOOKS.glob("*.ipynb"))


def executed(path: Path) -> Any:
    """A notebook with the outputs of a fresh run.

    Parameters
    ----------
    path : of the notebook, in whose folder it runs
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count, cell.metadata = [], None, {}
    environment = {**os.environ, "PLOTLY_RENDERER": "plotly_mimetype", "PYTHONPATH": str(NOTEBOOKS.parent), "COLUMNS": "120"}
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", record_timing=False, coalesce_streams=True)
    client.execute(cwd=str(path.parent), env=environment)
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    return notebook


def figures(notebook: Any) -> Iterator[Any]:
    """Outputs of a notebook that hold a Plotly figure."""
    for cell in notebook.cells:
        yield from (output for output in cell.get("outputs", []) if PLOTLY in output.get("data", {}))


def illustrate(notebook: Any, server: Any) -> None:
    """Put a static image beside each Plotly figure; a figure that is too large keeps the image alone.

    Parameters
    ----------
    notebook : that was run
    server : kaleido's, already open
    """
    for output in figures(notebook):
        figure = output.data[PLOTLY]
        drawn = {"data": figure["data"], "layout": figure["layout"]}
        size = {"width": WIDTH, "height": figure["layout"].get("height") or HEIGHT, "scale": SCALE}
        image = server.calc_fig_sync(drawn, opts={"format": "png", **size})
        packed = io.BytesIO()
        Image.open(io.BytesIO(image)).convert("RGB").quantize(COLOURS).save(packed, "PNG", optimize=True)
        output.data = {
            PLOTLY: {key: figure[key] for key in ("data", "layout")}, IMAGE: base64.b64encode(packed.getvalue()).decode()
        }  # fmt: skip
        if len(json.dumps(output.data[PLOTLY])) > LARGEST:
            del output.data[PLOTLY]


def write(chosen: Sequence[Path] = ()) -> None:
    """Run notebooks and save each with its outputs.

    Parameters
    ----------
    chosen : paths; all of the book if empty
    """
    import kaleido

    kaleido.start_sync_server(silence_warnings=True, mathjax=False)
    try:
        for path in chapters(chosen):
            print(path.name, flush=True)
            notebook = executed(path)
            illustrate(notebook, kaleido)
            partial = path.with_name(path.name + ".partial")
            nbformat.write(notebook, partial)
            partial.replace(path)
    finally:
        kaleido.stop_sync_server(silence_warnings=True)
