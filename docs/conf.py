"""Sphinx's settings; `python -m docs site` stages the sources beside a copy of this file and builds them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

import costmodel

project, author, release = "costmodel", "the costmodel authors", costmodel.__version__
copyright = author
extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb"]
root_doc = "README"
default_role = "code"
html_theme = "furo"
html_title = f"costmodel {release}"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html", "sidebar/search.html", "sidebar/scroll-start.html", "what_if.html", "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}  # fmt: skip
html_copy_source = html_show_sourcelink = False
html_math_renderer = "mathml"
nb_execution_mode = "off"
nb_render_markdown_format = "gfm"  # tables that cells write: CommonMark has none
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
SECTION = re.compile(r"^-{3,}$")
ARGUMENT = re.compile(r"^(\w[\w, *]*) : (.+)$")
CARRIED = re.compile(r"^(\w[\w, ]*,)\n *(?=\w[\w, ]* : )", re.MULTILINE)
"""Names of arguments that go on in the next line."""
CITED = re.compile(r"\[([a-z][\w-]*)\]_")


def spread(app: Any, what: str, name: str, found: Any, options: Any, given: list[str]) -> None:
    """Put the meaning of an argument below its name, paragraphs after the arguments into notes, citations into links."""
    written: list[str] = []
    arguments = False
    lines = CARRIED.sub(r"\1 ", "\n".join(given)).split("\n")
    for place, line in enumerate(lines):
        if SECTION.match(line):
            arguments = lines[place - 1] == "Parameters"
        argument = ARGUMENT.match(line) if arguments else None
        if arguments and not argument and line and line[0] not in " -" and not lines[place - 1] and not is_title(lines, place):
            written += ["Notes", "-----"]
            arguments = False
        written += [argument[1], f"    {argument[2]}"] if argument else [line]
    given[:] = [CITED.sub(r":ref:`[\1] <\1>`", line) for line in written]


def is_title(lines: list[str], place: int) -> bool:
    """Whether a line is underlined."""
    return place + 1 < len(lines) and SECTION.match(lines[place + 1]) is not None


def inline(self: Any, node: nodes.Element) -> None:
    """Mathematics in a line as MathML, which browsers draw without a script."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed(self: Any, node: nodes.Element) -> None:
    """Mathematics of its own as MathML."""
    self.body.append(f'<div class="equation">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def share_column(columns: dict[tuple[str, ...], str]) -> Callable[..., None]:
    """Draw the column at the left once for all pages of a folder that no contents list, which are most of the site.

    Parameters
    ----------
    columns : where those that were drawn are kept
    """

    def share(app: Any, name: str, template: str, context: dict[str, Any], tree: Any) -> None:
        draw = context.get("toctree")
        if "orphan" not in app.env.metadata.get(name, {}) or draw is None:
            return

        def drawn(**options: Any) -> str:
            key = (posixpath.dirname(name), *map(str, sorted(options.items())))
            if key not in columns:
                columns[key] = draw(**options)
            return columns[key]

        context["toctree"] = drawn

    return share


def setup(app: Any) -> None:
    """Connect what is ours."""
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    app.add_css_file("site.css")
    app.connect("autodoc-process-docstring", spread, priority=400)  # before Napoleon
    app.connect("html-page-context", share_column({}), priority=400)  # before the theme, which draws it
