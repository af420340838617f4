"""A formula is a page: its docstring says in one line what it gives, and names every argument."""

import importlib
import inspect
import pkgutil
import re
import types

import pytest

from costmodel import formulas
from costmodel.arithmetic import ops
from costmodel.compilation import algebra as symbolic

MODULES = [importlib.import_module(info.name) for info in pkgutil.walk_packages(formulas.__path__, f"{formulas.__name__}.")]
FORMULAS = {
    f"{module.__name__.removeprefix('costmodel.')}.{name}": formula
    for module in (*MODULES, ops, symbolic)
    for name, formula in vars(module).items()
    if isinstance(formula, types.FunctionType) and formula.__module__ == module.__name__ and not name.startswith("_")
}
BY_MODULE = {
    module: [name for name in FORMULAS if name.rpartition(".")[0] == module]
    for module in dict.fromkeys(name.rpartition(".")[0] for name in FORMULAS)
}
"""Names of formulas by their modules, each of which is one test."""
TUPLES = {
    f"{module.__name__.removeprefix('costmodel.')}.{name}": kind
    for module in MODULES
    for name, kind in vars(module).items()
    if isinstance(kind, type) and hasattr(kind, "_fields") and kind.__module__ == module.__name__
}
SECTIONS = ("Parameters", "Returns", "Raises", "References", "Examples", "Notes")


def sections(formula):
    """The lines of each section of a docstring in NumPy's style; those above the first under ''."""
    lines = inspect.cleandoc(formula.__doc__ or "").splitlines()
    found, title = {"": []}, ""
    for line, under in zip(lines, [*lines[1:], ""], strict=True):
        if under and set(under) == {"-"} and line in SECTIONS:
            title = line
            found[title] = []
        elif set(line) != {"-"} or not line:
            found[title].append(line)
    return found


def documented(formula):
    """Names on the left of the colons of the section on parameters."""
    heads = [line for line in sections(formula).get("Parameters", []) if re.match(r"\w[\w, ]* : ", line)]
    return [name.strip() for line in heads for name in line.split(" : ")[0].split(",")]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_a_room_says_what_is_in_it(module):
    assert module.__doc__
    assert module.__doc__.strip().splitlines()[0].rstrip().endswith((".", "?"))


@pytest.mark.parametrize("module", BY_MODULE)
def test_a_formula_says_in_one_line_what_it_gives(module):
    for name in BY_MODULE[module]:
        above = sections(FORMULAS[name])[""]
        assert above, f"{name} has no docstring"
        assert above[0][0].isupper() or above[0][0].isdigit() or above[0][0] == "`", (name, above[0])
        assert above[0].endswith((".", ":")) or len(above) > 1, (name, above[0])
        assert len(above) == 1 or not above[1] or not above[0].endswith("."), f"{name}: an empty line after the summary"


@pytest.mark.parametrize("module", [module for module in BY_MODULE if module.startswith("formulas.")])
def test_a_formula_documents_each_argument_by_name_but_for_those_that_are_documented_once(module):
    for name in BY_MODULE[module]:
        named, signature = documented(FORMULAS[name]), inspect.signature(FORMULAS[name]).parameters
        around = FORMULAS[name].__globals__
        kinds = {one: around.get(said.annotation, said.annotation) for one, said in signature.items()}
        groups = {one for one, kind in kinds.items() if hasattr(kind, "_fields")}
        usual = around.get("ARGUMENTS", {}).keys()
        assert len(named) == len(set(named)), name
        assert signature.keys() - groups - usual <= set(named) <= signature.keys(), name


def test_a_docstring_names_no_argument_that_is_not_there():
    for name in (name for name in FORMULAS if not name.startswith("formulas.")):
        assert set(documented(FORMULAS[name])) <= set(inspect.signature(FORMULAS[name]).parameters), name


def test_a_tuple_of_quantities_says_what_it_is():
    for name, kind in TUPLES.items():
        assert kind.__doc__, name
        assert not kind.__doc__.startswith(f"{kind.__name__}("), f"{name} has the docstring that NamedTuple makes"


def test_a_wrong_docstring_would_be_found():
    def formula(nbytes, ranks):
        """Time.

        Parameters
        ----------
        nbytes, rank : of a buffer [bytes]
            on each
        """

    assert documented(formula) == ["nbytes", "rank"]
    assert sections(formula)[""][0] == "Time."
