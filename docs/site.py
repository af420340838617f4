"""The static site: README, book, pages, API, every formula and the what-if page; nothing in it is loaded from elsewhere."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import costmodel
from costmodel.catalogue import loader
from costmodel.page import site as what_if
from costmodel.plots.embedded import plotly_script
from docs.formula_pages import heading, write_pages
from docs.nomenclature import nomenclature

ROOT = Path(__file__).resolve().parents[1]
PLOTLY, IMAGE = "application/vnd.plotly.v1+json", "image/png"
PAGES = ("modelled", "command_line", "library", "one_price", "accuracy", "arena", "audits", "calibration")
CONTENTS = """
```{{toctree}}
:hidden:
:caption: {caption}

{pages}
```
"""


WHAT_IF = (
    '<div class="sidebar-tree"><ul><li class="toctree-l1"><a class="reference" '
    f"""href="{{{{ pathto('{what_if.BACK}/index.html', 1) }}}}">What if: ask and drag</a></li></ul></div>"""
)
"""The entry of the page that answers, in the column at the left."""


def contents(caption: str, pages: list[str]) -> str:
    """Entries of the column at the left."""
    return CONTENTS.format(caption=caption, pages="\n".join(pages))


def interactive(notebook: dict[str, Any]) -> dict[str, Any]:
    """A notebook whose figures are drawn by the site's own copy of Plotly, with the image where there is no script."""
    place = 0
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if PLOTLY not in data:
                continue
            figure, image = data.pop(PLOTLY), data.pop(IMAGE)
            load = '<script src="../_static/plotly.min.js"></script>' if not place else ""
            drawn = json.dumps([figure["data"], figure["layout"]]).replace("</", "<\\/")
            height = figure["layout"].get("height") or 460
            data["text/html"] = (
                f'{load}<div id="figure-{place}" style="height:{height}px"></div><noscript><img alt="the figure" '
                f'src="data:image/png;base64,{image}"></noscript><script>Plotly.newPlot("figure-{place}", ...{drawn}, '
                "{responsive: true, displaylogo: false})</script>"
            )
            place += 1
    return notebook


def references() -> str:
    """What docstrings cite, each under its key."""
    listed = tomllib.loads((resources.files("costmodel.catalogue") / "references.toml").read_text(encoding="utf-8"))
    parts = [heading("References")]
    for key, entry in sorted(listed.items()):
        where = entry.get("venue") or (f"arXiv:{entry['arxiv']}" if "arxiv" in entry else entry.get("url", ""))
        link = f" https://arxiv.org/abs/{entry['arxiv']}" if "arxiv" in entry else ""
        told = f"{entry['authors']}: *{entry['title'].replace('*', '')}*. {where} {entry['year']}.{link}"
        parts.append(f".. _{key}:\n\n**[{key}]** {told}\n")
    return "\n".join(parts)


def write_api(folder: Path) -> None:
    """A page for each module that has public names, as `costmodel.__init__` lists them."""
    folder.mkdir()
    homes: dict[str, list[str]] = {}
    for name, home in costmodel._HOME.items():
        homes.setdefault(home, []).append(name)
    text = heading("API") + "\nEvery name can be imported from ``costmodel``.\n\n.. toctree::\n   :maxdepth: 2\n\n"
    (folder / "index.rst").write_text(text + "".join(f"   {home}\n" for home in homes), encoding="utf-8")
    for home, names in homes.items():
        parts = [heading(home), f".. automodule:: costmodel.{home}\n   :no-members:\n"]
        for name in names:
            is_class = isinstance(getattr(costmodel, name), type)
            members = "\n   :members:" if is_class else ""
            parts.append(f".. auto{'class' if is_class else 'function'}:: costmodel.{home}.{name}{members}\n")
        (folder / f"{home}.rst").write_text("\n".join(parts), encoding="utf-8")


def stage(folder: Path) -> None:
    """Lay the sources out as the repository has them, with what is made for the site.

    Parameters
    ----------
    folder : empty
    """
    shutil.copy(ROOT / "docs" / "conf.py", folder)
    (folder / "docs").mkdir()
    (folder / "notebooks").mkdir()
    for page in (ROOT / "docs").glob("*.md"):
        shutil.copy(page, folder / "docs")
    shutil.copytree(ROOT / "docs" / "images", folder / "docs" / "images")
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "CITATION.cff"):
        shutil.copy(ROOT / name, folder)
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        notebook = interactive(json.loads(path.read_text(encoding="utf-8")))
        (folder / "notebooks" / path.name).write_text(json.dumps(notebook), encoding="utf-8")
    shutil.copy(ROOT / "notebooks" / "README.md", folder / "notebooks")
    (folder / "_templates").mkdir()
    (folder / "_templates" / "what_if.html").write_text(WHAT_IF, encoding="utf-8")
    (folder / "_static").mkdir()
    (folder / "_static" / "plotly.min.js").write_text(plotly_script(), encoding="utf-8")
    shutil.copy(ROOT / "docs" / "site.css", folder / "_static")
    write_pages(folder / "formulas")
    write_api(folder / "api")
    (folder / "nomenclature.rst").write_text(nomenclature(), encoding="utf-8")
    (folder / "references.rst").write_text(references(), encoding="utf-8")
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"\]\((\w+)\.ipynb\)", (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8"))
    front += contents("The book", ["notebooks/README", *(f"notebooks/{name}" for name in listed)])
    front += contents("Pages", [f"docs/{name}" for name in PAGES])
    front += contents("Reference", ["api/index", "nomenclature", "formulas/index", "references", "CONTRIBUTING", "CHANGELOG"])
    (folder / "README.md").write_text(front, encoding="utf-8")


def build(output: Path) -> int:
    """Build the site, every warning an error; Sphinx's exit status.

    Parameters
    ----------
    output : folder of the site, written anew
    """
    from sphinx.cmd.build import build_main

    with tempfile.TemporaryDirectory() as work:
        source = Path(work) / "source"
        source.mkdir()
        stage(source)
        shutil.rmtree(output, ignore_errors=True)
        options = ["-b", "html", "-W", "--keep-going", "-q", "-j", "auto", "-d", str(Path(work) / "trees")]
        status = build_main([*options, str(source), str(output)])
    if not status:
        shutil.copy(output / "README.html", output / "index.html")
        what_if.build(output / what_if.BACK, loader.names("model"), loader.names("cluster"), book="../")
        print(f"{output / 'index.html'}")
    return status
